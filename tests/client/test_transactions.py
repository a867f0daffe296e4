"""Transactions: listed, described, aborted; and those that are open in partitions, with whose they are."""

import confluent_kafka
import pytest

from tidelog.client import ClientError
from tidelog.client.transactions import Transactions


def begun(bootstrap: str, name: str, topic: str) -> confluent_kafka.Producer:
    """A producer with a record in an open transaction."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    producer.flush()
    return producer


def test_an_open_transaction_is_found_by_all_that_is_known_of_it(bootstrap: str, topic: str) -> None:
    producer = begun(bootstrap, topic, topic)
    with Transactions(bootstrap) as transactions:
        [listed] = transactions.all(pattern=f"{topic}.*")
        described = transactions.describe(topic)
        assert (listed.name, listed.state, described.state) == (topic, "Ongoing", "Ongoing")
        assert listed.producer_id == described.producer_id
        assert (described.partitions, described.prepared) == ([(topic, 1)], False)
        assert described.started_ms is not None
        assert transactions.all(states=["CompleteCommit"], pattern=f"{topic}.*") == []
        assert transactions.all(longer_than_ms=3_600_000, pattern=f"{topic}.*") == []
        [found] = transactions.open_transactions([topic])
        assert (found.topic, found.partition, found.producer_id) == (topic, 1, listed.producer_id)
        producer.commit_transaction()
        assert transactions.open_transactions([topic]) == []
        assert transactions.describe(topic).state == "CompleteCommit"


def test_an_aborted_one_is_over_and_its_producer_fenced(bootstrap: str, topic: str) -> None:
    producer = begun(bootstrap, topic, topic)
    with Transactions(bootstrap) as transactions:
        transactions.abort(topic)
        assert transactions.open_transactions([topic]) == []
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction()


def test_one_that_its_coordinator_knows_hangs_not(bootstrap: str, topic: str) -> None:
    producer = begun(bootstrap, topic, topic)
    with Transactions(bootstrap) as transactions:
        assert transactions.hanging([topic]) == []
    producer.abort_transaction()


def test_an_id_that_nobody_has_is_told(bootstrap: str, topic: str) -> None:
    with (
        Transactions(bootstrap) as transactions,
        pytest.raises(ClientError, match=f"describe transactional id {topic}"),
    ):
        transactions.describe(topic)
