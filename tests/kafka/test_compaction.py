"""Compacted topics on one folder: what Tidelog compacted Apache Kafka takes over, and the other way round."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Producer as Client

from tests.batches import Batch, Producer, Sent
from tests.kafka.apache import ApacheKafka, tool
from tests.kafka.test_no_lock_in import new_producer, produce, wait_for_topics
from tests.log import keyed
from tests.log.harness import LogHarness
from tests.raw import Connection
from tests.reading import LATEST, create_topic, list_offset, stored_batches
from tests.served import Tidelog
from tidelog.env.real_disk import RealDisk

WAIT_S = 60.0
KEYS = [b"k%d" % n for n in range(8)]
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"}
CLEANER = {"node.id": "1", "log.cleaner.backoff.ms": "100"}


@contextmanager
def tidelog(folder: Path, **settings: str) -> Iterator[str]:
    given = {**CLEANER, **{name.replace("_", "."): value for name, value in settings.items()}}
    with Tidelog(folder, given) as broker:
        yield broker.bootstrap
        broker.stop()


@contextmanager
def kafka(folder: Path, **settings: str) -> Iterator[str]:
    with ApacheKafka(folder, {"log.cleaner.backoff.ms": "100"}, node_id=1) as broker:
        yield broker.bootstrap
        broker.stop()


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Writer:
    """An idempotent producer on a compacted topic, and what its records come to."""

    def __init__(self, producer_id: int) -> None:
        self.id = producer_id
        self.sequence = 0
        self.clock_ms = int(time.time() * 1000) - 3_000_000
        self.table: dict[bytes | None, tuple[int, bytes]] = {}
        self.last: tuple[bytes, int] | None = None

    def write(self, connection: Connection, rounds: int) -> None:
        """Each key once a round; the timestamps are far enough apart for a segment a record."""
        if self.last is not None:
            assert produce(connection, "compacted", 0, self.last[0]) == self.last[1], "the last batch is known"
        for _ in range(rounds):
            for key in KEYS:
                self.clock_ms += 1000
                value = b"%d" % self.sequence
                data = Batch(
                    [Sent(value, key=key)], producer=Producer(self.id, 0, self.sequence), base_timestamp=self.clock_ms
                ).encode()
                offset = produce(connection, "compacted", 0, data)
                self.table[key] = offset, value
                self.last = data, offset
                self.sequence += 1


def found(connection: Connection) -> list[tuple[int, bytes | None, bytes | None]]:
    return [record for batch in stored_batches(connection, "compacted") for record in batch.values()]


def table(connection: Connection) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {key: (offset, value) for offset, key, value in found(connection)}


@pytest.mark.parametrize("first", [tidelog, kafka])
def test_brokers_compact_by_turns(jars: Path, tmp_path: Path, first: Callable[..., object]) -> None:
    folder = tmp_path / "data"
    second = kafka if first is tidelog else tidelog
    writer: Writer | None = None
    for turn in (first, second, first):
        with turn(folder) as bootstrap:
            if writer is None:
                create_topic(bootstrap, "compacted", 1, CONFIGS)
            wait_for_topics(bootstrap, {"compacted"})
            with Connection(bootstrap) as connection:
                if writer is None:
                    writer = Writer(new_producer(connection))
                assert table(connection) == writer.table
                writer.write(connection, 3)
                eventually(lambda: len(found(connection)) <= len(KEYS) + 2, "it is never compacted")
                assert table(connection) == writer.table
                assert list_offset(connection, "compacted", LATEST) == writer.sequence
    checkpoint = (folder / "cleaner-offset-checkpoint").read_text().splitlines()
    assert any(line.startswith("compacted 0 ") for line in checkpoint)


def test_kafkas_tool_reads_compacted_segments(jars: Path, tmp_path: Path) -> None:
    harness = LogHarness(RealDisk(), str(tmp_path / "data"))
    log = keyed.compacted(harness, internal_segment_bytes="30000", index_interval_bytes="300")
    one, two = Producer(1, 0, 0), Producer(2, 0, 0)
    keyed.put(log, *[(b"old%d" % n, b"x" * 50) for n in range(100)], producer=one, codec=1)
    keyed.put(log, (b"old1", b"never"), producer=two, transactional=True)
    keyed.end(log, two, commit=False)
    for n in range(300):
        keyed.put(log, (b"k%d" % (n % 120), b"%d" % n * 20), (b"old%d" % (n % 40), b"new"), codec=(0, 1, 3, 4)[n % 4])
    keyed.put(log, (b"k7", None), (b"old99", b"kept"))
    keyed.put(log, (b"old99", b"again"), producer=Producer(1, 0, 100))
    keyed.roll(harness, log)
    keyed.clean(harness, log)
    keyed.put(log, (b"k8", b"last"))
    keyed.roll(harness, log)
    keyed.clean(harness, log)
    kept = keyed.pairs(log)
    folder = Path(log.folder)
    harness.stop()
    segments = sorted(folder.glob("*.log"))
    shown = tool("DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, segments)))
    assert shown.returncode == 0, shown.stderr
    assert "isvalid: false" not in shown.stdout
    lines = [line for line in shown.stdout.splitlines() if line.strip().startswith("| offset:")]
    offsets = [int(line.split("offset: ")[1].split()[0]) for line in lines if "endTxnMarker" not in line]
    assert offsets == [offset for offset, _, _ in kept]
    assert "deleteHorizonMs: OptionalLong[" in shown.stdout
    assert "endTxnMarker: ABORT" in shown.stdout
    indexes = sorted(folder.glob("*index"))
    checked = tool("DumpLogSegments", "--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert checked.returncode == 0, checked.stderr
    assert "Mismatches" not in checked.stdout + checked.stderr
    assert "passed sanity check" in checked.stdout


@pytest.mark.parametrize("second", [tidelog, kafka])
def test_a_swap_that_tidelog_left_half_done_is_completed(
    jars: Path, tmp_path: Path, second: Callable[..., object]
) -> None:
    """The old segments are still there, and the new one, whole, as `.swap`: killed in the middle of the renames."""
    folder, old = tmp_path / "data", tmp_path / "old"
    with tidelog(folder, log_cleaner_enable="false") as bootstrap:
        create_topic(bootstrap, "compacted", 1, CONFIGS)
        wait_for_topics(bootstrap, {"compacted"})
        with Connection(bootstrap) as connection:
            writer = Writer(new_producer(connection))
            writer.write(connection, 4)
    shutil.copytree(folder / "compacted-0", old)
    with tidelog(folder) as bootstrap, Connection(bootstrap) as connection:
        eventually(lambda: len(found(connection)) <= len(KEYS) + 2, "it is never compacted")
    partition = folder / "compacted-0"
    stems = {path.stem for path in old.glob("*.log")}
    new = min(path.stem for path in partition.glob("*.log"))
    for path in partition.glob(f"{new}.*"):
        if path.suffix != ".snapshot":
            path.rename(f"{path}.swap")
    for path in old.iterdir():
        if (
            path.stem in stems
            and path.suffix in (".log", ".index", ".timeindex")
            and not (partition / path.name).exists()
        ):
            shutil.copy(path, partition / path.name)
    (folder / ".kafka_cleanshutdown").unlink()
    with second(folder) as bootstrap:
        wait_for_topics(bootstrap, {"compacted"})
        with Connection(bootstrap) as connection:
            assert table(connection) == writer.table
            offsets = [offset for offset, _, _ in found(connection)]
            assert offsets == sorted(set(offsets))
            writer.write(connection, 1)
            assert table(connection) == writer.table
    assert not list(partition.glob("*.swap"))


def test_transactions_of_kafka_are_compacted_on(jars: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    expected: dict[bytes, bytes] = {}
    with kafka(folder) as bootstrap:
        create_topic(bootstrap, "compacted", 1, {**CONFIGS, "segment.ms": "50"})
        wait_for_topics(bootstrap, {"compacted"})
        client = Client({"bootstrap.servers": bootstrap, "transactional.id": "t", "linger.ms": 0})
        client.init_transactions(30)
        for number in range(12):
            client.begin_transaction()
            for key in KEYS[: number % 5 + 1]:
                client.produce("compacted", b"%d" % number, key)
            if number % 3 == 1:
                client.flush(10)
                client.abort_transaction(10)
            else:
                client.commit_transaction(10)
                expected |= dict.fromkeys(KEYS[: number % 5 + 1], b"%d" % number)
            time.sleep(0.06)
        with Connection(bootstrap) as connection:
            end = list_offset(connection, "compacted", LATEST)
            eventually(lambda: len(found(connection)) < 25, "Kafka doesn't compact")
        assert committed(bootstrap, end) == expected
    with tidelog(folder) as bootstrap:
        assert committed(bootstrap, end) == expected
        with Connection(bootstrap) as connection:
            for number in range(3):
                data = Batch(
                    [Sent(b"new%d" % number, key=b"k0")], base_timestamp=int(time.time() * 1000) + 1000 * number
                )
                produce(connection, "compacted", 0, data.encode())
            expected[b"k0"] = b"new2"
            end = list_offset(connection, "compacted", LATEST)
            eventually(lambda: [key for _, key, _ in found(connection)].count(b"k0") <= 2, "Tidelog doesn't compact")
        assert committed(bootstrap, end) == expected
    with kafka(folder) as bootstrap:
        wait_for_topics(bootstrap, {"compacted"})
        assert committed(bootstrap, end) == expected


def committed(bootstrap: str, end: int) -> dict[bytes, bytes]:
    """The last committed value of each key, as a consumer with read_committed sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition("compacted", 0, OFFSET_BEGINNING)])
        seen: dict[bytes, bytes] = {}
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                if message.offset() >= end - 1:
                    return seen
                continue
            seen[message.key()] = message.value()
        raise AssertionError("the end never came")
    finally:
        consumer.close()
