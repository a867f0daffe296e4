"""Tidelog is killed with its last commits in the journal: Apache Kafka goes on with the folder, then Tidelog again.

Kafka takes no notice of the journal. What comes back from it later is what nobody could have replaced meanwhile.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.batches import Batch, Producer, Sent
from tests.compat.test_transactions import read_confluent
from tests.kafka.apache import tool
from tests.kafka.same_answers.side import Side
from tests.kafka.test_no_lock_in import Folder, last_epoch_end, new_producer, produce, wait_for_topics
from tests.kafka.test_transactions_take_turns import ENDS, TOPIC, begin, sides, take_over, wait
from tests.raw import Connection
from tests.reading import LATEST, create_topic, list_offset, stored
from tests.served import Tidelog
from tidelog.broker.past import NOTE
from tidelog.log.journal import JOURNAL
from tidelog.log.journal_blocks import ALIGNMENT, BLOCK_MAGIC
from tidelog.wire.keys import ApiKey

__all__ = ["sides"]

PARTITIONS, ROUNDS = 60, 5
DEADLINE_S = 30.0
CAME_BACK = "came back from the journal"


def journals(folder: Path) -> dict[str, int]:
    """The files of the journal, and how many blocks each has."""
    return {path.name: blocks(path) for path in folder.glob(f"{JOURNAL}[0-9]*")}


def blocks(path: Path) -> int:
    data = path.read_bytes()
    return sum(data.startswith(BLOCK_MAGIC, at) for at in range(0, len(data), ALIGNMENT))


class Fleet:
    """An idempotent producer that writes to every partition of `tide`, a batch of one record each in a round."""

    def __init__(self, connection: Connection) -> None:
        self.id = new_producer(connection)
        self.sent: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}

    def batch(self, index: int, number: int) -> bytes:
        value = self.sent[index][number]
        return Batch([Sent(value)], producer=Producer(self.id, 0, number)).encode()

    def write(self, connection: Connection, index: int, said: bytes) -> None:
        self.sent[index].append(b"%s %d" % (said, len(self.sent[index])))
        number = len(self.sent[index]) - 1
        assert produce(connection, "tide", index, self.batch(index, number)) == number

    def write_all(self, connection: Connection, said: bytes) -> None:
        for index in range(PARTITIONS):
            self.write(connection, index, said)

    def check(self, bootstrap: str) -> None:
        """Every acknowledged record is there once, in its place, and the last batch is known when it is sent again."""
        with Connection(bootstrap) as connection:
            for index, values in self.sent.items():
                assert produce(connection, "tide", index, self.batch(index, len(values) - 1)) == len(values) - 1
                assert stored(bootstrap, "tide", index) == list(enumerate(values))
                assert list_offset(connection, "tide", LATEST, index) == len(values)
                assert last_epoch_end(connection, "tide", index) == len(values)


def commit_offset(connection: Connection, offset: int) -> None:
    parts = [{"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}]
    fields = {
        "group_id": "readers",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": "tide", "partitions": parts}],
    }

    def committed() -> bool:
        return connection.ask(ApiKey.OFFSET_COMMIT, 6, fields).topics[0].partitions[0].error_code == 0

    find(connection)
    wait(committed, "an offset is committed")


def find(connection: Connection) -> None:
    fields = {"key_type": 0, "coordinator_keys": ["readers"]}
    wait(
        lambda: connection.ask(ApiKey.FIND_COORDINATOR, 4, fields).coordinators[0].error_code == 0,
        "the group has a coordinator",
    )


def committed_offset(connection: Connection) -> int:
    find(connection)
    fields = {"group_id": "readers", "topics": [{"name": "tide", "partition_indexes": [0]}]}
    found: list[int] = []

    def asked() -> bool:
        answer = connection.ask(ApiKey.OFFSET_FETCH, 5, fields)
        if answer.error_code == 0:
            found.append(answer.topics[0].partitions[0].committed_offset)
        return bool(found)

    wait(asked, "the group is loaded")
    return found[-1]


def ready(connection: Connection, folder: Path) -> None:
    """Until commits go to the journal."""
    deadline = time.monotonic() + DEADLINE_S
    while not any(journals(folder).values()):
        assert time.monotonic() < deadline, "nothing is in the journal"
        produce(connection, "first", 0, Batch([Sent(b"first")]).encode())


@pytest.mark.parametrize("end", ["kill", pytest.param("stop", marks=pytest.mark.long)])
def test_kafka_goes_on_and_nothing_of_the_old_journal_comes_back(
    jars: Path, tmp_path: Path, sides: Callable[[str, str], Side], end: str
) -> None:
    data = tmp_path / "data"
    folder = Folder(data, {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"})
    with folder.tidelog("kill") as bootstrap, Connection(bootstrap) as connection:
        for name, partitions in (("first", 1), ("tide", PARTITIONS), (TOPIC, 2)):
            create_topic(bootstrap, name, partitions)
        ready(connection, data)
        before = sum(journals(data).values())
        fleet = Fleet(connection)
        for _ in range(ROUNDS):
            fleet.write_all(connection, b"tidelog")
        open_ones = {name: begin(sides("tidelog", bootstrap), name, name.encode()) for name in ENDS}
        commit_offset(connection, 3)
        assert sum(journals(data).values()) >= before + PARTITIONS * ROUNDS, "one sender waits for each commit"
    old = journals(data)
    with folder.kafka(end) as bootstrap, Connection(bootstrap) as connection:
        wait_for_topics(bootstrap, {"tide", "first", TOPIC})
        fleet.check(bootstrap)
        fleet.write_all(connection, b"kafka")
        assert committed_offset(connection) == 3
        commit_offset(connection, 5)
        txn = take_over(sides("kafka", bootstrap), open_ones.pop("keeps"))
        wait(lambda: txn.state() == "Ongoing", "the transaction is known")
        assert txn.end(commit=True).error_code == 0
    assert journals(data) == old, "Kafka takes no notice of them"
    with Tidelog(data, {"node.id": "1", **folder.settings}) as broker, Connection(broker.bootstrap) as connection:
        wait_for_topics(broker.bootstrap, {"tide", "first", TOPIC})
        fleet.check(broker.bootstrap)
        assert committed_offset(connection) == 5
        txn = take_over(sides("tidelog", broker.bootstrap), open_ones.pop("drops"))
        wait(lambda: txn.state() == "Ongoing", "the transaction is known")
        assert txn.end(commit=False).error_code == 0
        for partition in (0, 1):
            assert read_confluent(broker.bootstrap, TOPIC, partition) == [b"keeps"]
        wait(lambda: not old.keys() & journals(data).keys(), "the old files go when all logs are open")
        fleet.write_all(connection, b"again")
        fleet.check(broker.bootstrap)
        broker.stop()
        assert CAME_BACK not in broker.said(10_000)
    assert [path.name for path in data.glob("tidelog-*") if path.name != NOTE] == []


def move(bootstrap: str, places: Mapping[str, Path]) -> None:
    """Kafka takes partition 0 of each topic into another data folder; the old one is gone when it is done."""
    partitions = [
        {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [str(folder)]} for topic, folder in places.items()
    ]
    plan = next(iter(places.values())).with_suffix(".json")
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    said = tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "--bootstrap-server",
        bootstrap,
        "--reassignment-json-file",
        str(plan),
        "--execute",
    )
    assert "Successfully started" in said.stdout, said.stdout + said.stderr
    for topic, folder in places.items():
        wait(lambda topic=topic, folder=folder: (folder / f"{topic}-0").is_dir(), f"{topic} is moved")


def make_anew(bootstrap: str, connection: Connection, topic: str) -> None:
    """Delete a topic, and make another of its name."""
    connection.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": [topic], "timeout_ms": 10_000})
    create_topic(bootstrap, topic)
    wait_for_topics(bootstrap, {topic})


def tidelog_on(first: Path, second: Path) -> Tidelog:
    """Killed when it is left, if it wasn't stopped."""
    broker = Tidelog(Path(f"{first},{second}"), {"node.id": "1"})
    broker.output = first.with_suffix(".log")
    return broker


@pytest.mark.long
def test_what_kafka_moved_deleted_or_made_anew_is_as_it_left_it(jars: Path, tmp_path: Path) -> None:
    """Two data folders: the journal of one still knows of partitions that Kafka took elsewhere."""
    first, second = tmp_path / "data", tmp_path / "second"
    names = ("anew", "gone", *(f"moved{number}" for number in range(4)))
    record = Batch([Sent(b"old")]).encode()
    with tidelog_on(first, second) as broker, Connection(broker.bootstrap) as connection:
        for name in names:
            create_topic(broker.bootstrap, name)
        for root in (first, second):
            wait(
                lambda root=root: (
                    all(produce(connection, name, 0, record) >= 0 for name in names) and any(journals(root).values())
                ),
                f"{root} has a journal",
            )
        ends = {name: produce(connection, name, 0, record) + 1 for name in names}
    old = {root: journals(root).keys() for root in (first, second)}
    with (
        Folder(first, {"log.dirs": f"{first},{second}"}).kafka("kill") as bootstrap,
        Connection(bootstrap) as connection,
    ):
        wait_for_topics(bootstrap, set(names))
        places = {name: second if (first / f"{name}-0").is_dir() else first for name in names[2:]}
        move(bootstrap, places)
        for name in places:
            assert produce(connection, name, 0, record) == ends[name]
            ends[name] += 1
        make_anew(bootstrap, connection, "anew")
        assert produce(connection, "anew", 0, Batch([Sent(b"new")]).encode()) == 0
        connection.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["gone"], "timeout_ms": 10_000})
    with tidelog_on(first, second) as broker:
        wait_for_topics(broker.bootstrap, {name for name in names if name != "gone"})
        assert stored(broker.bootstrap, "anew") == [(0, b"new")]
        for name, place in places.items():
            assert stored(broker.bootstrap, name) == [(number, b"old") for number in range(ends[name])]
            assert [root for root in (first, second) if (root / f"{name}-0").is_dir()] == [place]
        for root in (first, second):
            wait(lambda root=root: not old[root] & journals(root).keys(), "the old files go when all logs are open")
            assert not list(root.glob("gone-0"))
        broker.stop()
        assert CAME_BACK not in broker.said(10_000)


def test_after_a_power_loss_nothing_comes_back_behind_what_kafka_wrote(jars: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    folder = Folder(data)
    with folder.tidelog("kill") as bootstrap, Connection(bootstrap) as connection:
        for name, partitions in (("first", 1), ("tide", 3)):
            create_topic(bootstrap, name, partitions)
        ready(connection, data)
        fleet = Fleet(connection)
        for _ in range(4):
            for index in range(3):
                fleet.write(connection, index, b"tidelog")
    for index in range(3):  # the page cache had it, and the journal
        segment = data / f"tide-{index}" / "00000000000000000000.log"
        lost_from = len(fleet.batch(index, 0))
        assert segment.stat().st_size == 4 * lost_from
        with segment.open("r+b") as file:
            file.truncate(lost_from)
    with folder.kafka("kill") as bootstrap, Connection(bootstrap) as connection:
        wait_for_topics(bootstrap, {"tide"})
        for index in range(3):
            assert stored(bootstrap, "tide", index) == [(0, b"tidelog 0")], "what it would have lost itself"
        for index, records in ((0, 1), (1, 3)):
            fleet.sent[index] = fleet.sent[index][:1]
            for _ in range(records):
                fleet.write(connection, index, b"kafka")
    with Tidelog(data, {"node.id": "1"}) as broker, Connection(broker.bootstrap) as connection:
        wait_for_topics(broker.bootstrap, {"tide"})
        for index in range(3):
            assert stored(broker.bootstrap, "tide", index) == list(enumerate(fleet.sent[index])), index
            assert last_epoch_end(connection, "tide", index) == len(fleet.sent[index]), index
            fleet.write(connection, index, b"again")
            assert last_epoch_end(connection, "tide", index) == len(fleet.sent[index]), index
        assert broker.said(10_000).count(CAME_BACK) == 1
        broker.stop()
