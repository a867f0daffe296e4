"""Open transactions on a folder that Tidelog and Apache Kafka take turns on: whoever comes next finishes them."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.batches import Batch, Sent
from tests.compat.test_transactions import read_confluent
from tests.kafka.apache import tool
from tests.kafka.same_answers.scripts.transactions import CLASSIC, SECOND, Txn
from tests.kafka.same_answers.side import Side
from tests.kafka.test_no_lock_in import Folder, wait_for_topics
from tests.raw import Connection
from tests.reading import create_topic
from tidelog.coordinator.placement import TRANSACTION_STATE
from tidelog.coordinator.txn.replay import record
from tidelog.coordinator.txn.state import Status, Transaction
from tidelog.wire.keys import ApiKey
from tidelog.wire.records.coordinator import TRANSACTIONS_TOPIC, RecordTypes

TOPIC = "ledger"
DEADLINE_S = 30.0
ENDS = {"keeps": True, "drops": False}


@pytest.fixture
def sides() -> Iterator[Callable[[str, str], Side]]:
    """Makes the asking sides, and closes them."""
    made: list[Side] = []

    def make(name: str, bootstrap: str) -> Side:
        made.append(Side(name, bootstrap))
        return made[-1]

    yield make
    for side in made:
        side.close()


def begin(side: Side, name: str, value: bytes, version: int = CLASSIC, timeout_ms: int = 600_000) -> Txn:
    """A transaction that is open in both partitions."""
    txn = Txn(side, name, version)
    assert txn.init(timeout_ms=timeout_ms).error_code == 0
    if not txn.joins:
        txn.add(TOPIC, 0, 1)
    for partition in (0, 1):
        answer = txn.send(TOPIC, value, partition=partition)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return txn


def decide_to_commit(bootstrap: str, txn: Txn) -> None:
    """The decision is written and nothing else: as if the coordinator died before the first marker."""
    now_ms = int(time.time() * 1000)
    prepared = Transaction(
        txn.name,
        txn.id,
        txn.epoch,
        txn.id,
        timeout_ms=600_000,
        status=Status.PREPARE_COMMIT,
        partitions=frozenset(((TOPIC, 0), (TOPIC, 1))),
        start_ms=now_ms,
        updated_ms=now_ms,
    )
    types = RecordTypes(TRANSACTIONS_TOPIC)
    entry = record(prepared)
    batch = Batch([Sent(types.encode_value(entry.value), key=types.encode_key(entry.key))]).encode()
    with Connection(bootstrap, client_id="__admin_client") as connection:
        topics = connection.ask(ApiKey.METADATA, 9, {"topics": [{"name": TRANSACTION_STATE}]}).topics
        assert len(topics[0].partitions) == 1
        parts = [{"index": 0, "records": batch}]
        fields = {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": TRANSACTION_STATE, "partition_data": parts}],
        }
        answer = connection.ask(ApiKey.PRODUCE, 9, fields)
        assert answer.responses[0].partition_responses[0].error_code == 0


def wait(what: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline, f"{why}: not within {DEADLINE_S:.0f} s"
        time.sleep(0.05)


def take_over(side: Side, old: Txn) -> Txn:
    """The same producer, on the broker that is there now."""
    txn = Txn(side, old.name, old.end_version)
    txn.find()
    txn.id, txn.epoch, txn.sequences = old.id, old.epoch, dict(old.sequences)
    return txn


@pytest.mark.parametrize("first", ["tidelog", "kafka"])
def test_whoever_comes_next_finishes_what_was_open(
    jars: Path, tmp_path: Path, sides: Callable[[str, str], Side], first: str
) -> None:
    folder = Folder(tmp_path / "data", {"transaction.state.log.num.partitions": "1"})
    second = "kafka" if first == "tidelog" else "tidelog"
    expected: list[bytes] = []
    left: dict[str, Txn] = {}
    for turn, (who, successor) in enumerate(((first, second), (second, first), (first, second))):
        with getattr(folder, who)("kill") as bootstrap:
            side = sides(who, bootstrap)
            if not turn:
                create_topic(bootstrap, TOPIC, 2)
            wait_for_topics(bootstrap, {TOPIC})
            for name, old in left.items():
                txn = take_over(side, old)
                wait(lambda txn=txn: txn.state() != "", f"{name} is known to {who}")
                kind = name.split("-")[0]
                if kind in ENDS:
                    assert txn.state() == "Ongoing"
                    assert txn.end(commit=ENDS[kind]).error_code == 0
                elif kind == "decided":
                    wait(lambda txn=txn: txn.state() == "CompleteCommit", f"{who} finishes {name}")
                else:
                    wait(lambda txn=txn: txn.state() == "CompleteAbort", f"{who} aborts {name}")
                if kind in ("keeps", "decided"):
                    expected.append(name.encode())
            for partition in (0, 1):
                assert sorted(read_confluent(bootstrap, TOPIC, partition)) == sorted(expected), (who, turn)
            left = {}
            for version in (CLASSIC, SECOND):
                for kind in ENDS:
                    name = f"{kind}-{version}-{turn}"
                    left[name] = begin(side, name, name.encode(), version)
            name = f"late-{turn}"
            left[name] = begin(side, name, name.encode(), timeout_ms=5000)
            if successor == "tidelog":
                # Kafka, when it loads such a decision, leaves out the markers of partitions whose leader it doesn't
                # know yet, as those of deleted topics: then the transaction hangs. It goes well, or not, by chance.
                name = f"decided-{turn}"
                left[name] = begin(side, name, name.encode())
                decide_to_commit(bootstrap, left[name])


def test_kafkas_tool_lists_describes_and_aborts(jars: Path, tmp_path: Path, sides: Callable[[str, str], Side]) -> None:
    folder = Folder(tmp_path / "data")
    with folder.tidelog("stop") as bootstrap:
        side = sides("tidelog", bootstrap)
        create_topic(bootstrap, TOPIC, 2)
        txn = begin(side, "seen", b"value")

        def command(*arguments: str) -> str:
            done = tool("TransactionsCommand", "--bootstrap-server", bootstrap, *arguments)
            return done.stdout + done.stderr

        assert "seen" in command("list")
        described = command("describe", "--transactional-id", "seen")
        assert "Ongoing" in described
        assert f"{TOPIC}-0" in described
        assert str(txn.id) in command("describe-producers", "--topic", TOPIC, "--partition", "0")
        command("abort", "--topic", TOPIC, "--partition", "0", "--start-offset", "0")
        assert read_confluent(bootstrap, TOPIC, 0) == []
        after = Batch([Sent(b"after")]).encode()
        side.produce(TOPIC, after, version=9)
        assert read_confluent(bootstrap, TOPIC, 0) == [b"after"]
