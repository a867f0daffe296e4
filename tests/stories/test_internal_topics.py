"""The topics of the coordinators keep the number of partitions that they were made with, and aren't deleted.

Where a group or a transactional id has its state is a hash of its name over that number: another number, and committed
offsets are looked for where they aren't, without an error.
"""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.raw import Connection
from tests.served import Tidelog
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

TOPIC = "logbook"
INTERNAL = ("__consumer_offsets", "__transaction_state")
GROUPS = [f"crew-{number}" for number in range(20)]
SETTINGS = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
OTHERS = {"offsets.topic.num.partitions": "11", "transaction.state.log.num.partitions": "11"}
DEADLINE_S = 20


def refusal(futures: dict[Any, "Future[Any]"]) -> KafkaError:
    (future,) = futures.values()
    with pytest.raises(KafkaException) as caught:
        future.result(DEADLINE_S)
    return caught.value.args[0]


def commit(broker: Tidelog, offset: int) -> None:
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        consumer.close()


def committed(broker: Tidelog) -> list[int]:
    found: list[int] = []
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        found.append(consumer.committed([TopicPartition(TOPIC, 0)], DEADLINE_S)[0].offset)
        consumer.close()
    return found


def producer(broker: Tidelog) -> Producer:
    """The one under its transactional id: whoever was it before is fenced."""
    made = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "till", "log_level": 2})
    made.init_transactions(DEADLINE_S)
    return made


def test_groups_keep_their_offsets_and_producers_are_fenced_whatever_an_operator_tries(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data", SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(DEADLINE_S)
        former = producer(broker)
        commit(broker, 7)
        for name in INTERNAL:
            error = refusal(admin.create_partitions([NewPartitions(name, 11)]))
            assert error.code() == KafkaError.TOPIC_EXCEPTION
            assert f"{name} has 4 partitions, and keeps them" in error.str()
            assert refusal(admin.delete_topics([name])).code() == KafkaError.TOPIC_EXCEPTION
        broker.stop()
        broker.settings = OTHERS
        broker.start()
        assert committed(broker) == [7] * len(GROUPS)
        former.begin_transaction()
        producer(broker)
        former.produce(TOPIC, b"late")
        with pytest.raises(KafkaException) as fenced:
            former.commit_transaction(DEADLINE_S)
        assert fenced.value.args[0].code() == KafkaError._FENCED


def test_the_others_of_the_request_are_grown_and_deleted(tmp_path: Path) -> None:
    """By id and for a trial, too; what is asked for beside an internal topic is done."""
    with Tidelog(tmp_path / "data", SETTINGS) as broker, Connection(broker.bootstrap) as connection:
        made = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
        connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [made], "timeout_ms": 5000})
        connection.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["crew"]})
        topics = [{"name": name, "count": 9, "assignments": None} for name in ("__consumer_offsets", TOPIC)]
        expected = [("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION), (TOPIC, ErrorCode.NONE)]
        for validate_only in (True, False):
            fields = {"topics": topics, "timeout_ms": 5000, "validate_only": validate_only}
            results = connection.ask(ApiKey.CREATE_PARTITIONS, 3, fields).results
            assert sorted((one.name, one.error_code) for one in results) == expected
        known = connection.ask(ApiKey.METADATA, 12, {"topics": None}).topics
        assert {one.name: len(one.partitions) for one in known} == {"__consumer_offsets": 4, TOPIC: 9}
        by_id = [{"name": None, "topic_id": one.topic_id} for one in known]
        results = connection.ask(ApiKey.DELETE_TOPICS, 6, {"topics": by_id, "timeout_ms": 5000}).responses
        assert sorted((one.name, one.error_code) for one in results) == expected
        assert "can't be deleted" in min(results, key=lambda one: one.name).error_message
        known = connection.ask(ApiKey.METADATA, 12, {"topics": None}).topics
        assert [one.name for one in known] == ["__consumer_offsets"]
