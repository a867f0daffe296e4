"""Groups with tens of thousands of offsets: whatever is done with them, no turn of the loop is long for it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.group_requests import LATER, find_coordinator
from tests.raw import Connection
from tests.turns import WatchedBroker
from tidelog.wire.keys import ApiKey

TOPICS = [f"wide-{number}" for number in range(6)]
PARTITIONS = 10_000
TXN = "large"
CONCURRENT_TRANSACTIONS = 51


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    """Durability `os`: what is written is committed at once, so that nothing but the broker itself ends a turn."""
    with WatchedBroker(tmp_path_factory.mktemp("data"), {"tidelog.durability": "os"}) as made:
        with Connection(made.bootstrap, timeout_s=60) as asking:
            make_topics(asking, TOPICS)
            for group in ("deleted", "forgotten", "of-topics", "in-txn-True", "in-txn-False"):
                find_coordinator(asking, group)
        yield made


@pytest.fixture
def client(broker: WatchedBroker) -> Iterator[Connection]:
    with Connection(broker.bootstrap, timeout_s=60) as made:
        yield made


def make_topics(client: Connection, names: list[str]) -> None:
    for name in names:
        topic = {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1}
        made = client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 60_000})
        assert made.topics[0].error_code == 0


def all_partitions(topics: list[str], **fields: Any) -> list[dict[str, Any]]:
    indexes = [{"partition_index": index, **fields} for index in range(PARTITIONS)]
    return [{"name": name, "partitions": indexes} for name in topics]


def codes(answer: Any) -> set[int]:
    return {partition.error_code for topic in answer.topics for partition in topic.partitions}


def commit(client: Connection, group: str, topics: list[str]) -> None:
    fields = {"group_id": group, "topics": all_partitions(topics, committed_offset=5)}
    assert codes(client.ask(ApiKey.OFFSET_COMMIT, 8, fields)) == {0}


def fetched(client: Connection, group: str) -> int:
    """How many offsets the group has."""
    answer = client.ask(ApiKey.OFFSET_FETCH, 7, {"group_id": group, "topics": None})
    return sum(len(topic.partitions) for topic in answer.topics)


def test_a_group_is_deleted(broker: WatchedBroker, client: Connection) -> None:
    def delete() -> None:
        commit(client, "deleted", TOPICS[:2])
        deleted = client.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["deleted"]})
        assert [one.error_code for one in deleted.results] == [0]
        assert fetched(client, "deleted") == 0

    broker.unheld(delete)


def test_offsets_are_deleted(broker: WatchedBroker, client: Connection) -> None:
    def delete() -> None:
        commit(client, "forgotten", TOPICS[:2])
        fields = {"group_id": "forgotten", "topics": all_partitions(TOPICS[:2])}
        deleted = client.ask(ApiKey.OFFSET_DELETE, 0, fields)
        assert deleted.error_code == 0
        assert codes(deleted) == {0}
        assert fetched(client, "forgotten") == 0

    broker.unheld(delete)


def test_the_topics_of_its_offsets_are_deleted(broker: WatchedBroker, client: Connection) -> None:
    kept, gone = TOPICS[0], [f"gone-{number}" for number in range(3)]

    def delete() -> None:
        make_topics(client, gone)
        commit(client, "of-topics", [kept, *gone])
        topics = [{"name": name} for name in gone]
        deleted = client.ask(ApiKey.DELETE_TOPICS, 6, {"topics": topics, "timeout_ms": 60_000})
        assert {one.error_code for one in deleted.responses} == {0}
        while fetched(client, "of-topics") > PARTITIONS:
            pass

    broker.unheld(delete)


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_with_its_offsets_ends(broker: WatchedBroker, client: Connection, committed: bool) -> None:
    group = f"in-txn-{committed}"

    def begin() -> Any:
        client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [TXN]})
        fields = {"transactional_id": TXN, "transaction_timeout_ms": 60_000}
        while (begun := client.ask(ApiKey.INIT_PRODUCER_ID, 4, fields)).error_code in (*LATER, CONCURRENT_TRANSACTIONS):
            pass
        return begun

    def transaction() -> None:
        begun = begin()
        assert begun.error_code == 0
        producer = {
            "transactional_id": TXN,
            "producer_id": begun.producer_id,
            "producer_epoch": begun.producer_epoch,
        }
        fields = {**producer, "group_id": group, "topics": all_partitions(TOPICS, committed_offset=7)}
        assert codes(client.ask(ApiKey.TXN_OFFSET_COMMIT, 5, fields)) == {0}
        assert client.ask(ApiKey.END_TXN, 5, {**producer, "committed": committed}).error_code == 0
        while fetched(client, group) != (len(TOPICS) * PARTITIONS if committed else 0):
            pass

    broker.unheld(transaction)
