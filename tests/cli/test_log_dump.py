"""`tidelog log dump` on files written by the log's own writers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidelog.cli.app import app
from tidelog.client import Admin, Producer
from tidelog.env.real_disk import RealDisk
from tidelog.log.checkpoints import write_epochs, write_offsets, write_partition_metadata
from tidelog.log.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.testing import Broker
from tidelog.wire.batch import build
from tidelog.wire.record import Record

DAY_MS = 1_750_000_000_000


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["log", "dump", *map(str, arguments)])


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    folder = tmp_path / "tides-0"
    folder.mkdir()
    first = build([Record(timestamp=DAY_MS, key=b"k", value=b"high", headers=[("h", b"1")])], base_offset=5)
    second = build(
        [Record(timestamp=DAY_MS + n, value=b"\xff%d" % n) for n in range(3)],
        base_offset=6,
        leader_epoch=2,
        producer_id=1000,
        producer_epoch=1,
        base_sequence=7,
        compression=4,
    )
    path = folder / "00000000000000000005.log"
    path.write_bytes(bytes(first) + bytes(second))
    return path


def test_a_segment_is_told_in_words(segment: Path) -> None:
    result = dump(segment)
    assert result.exit_code == 0, result.output
    heading, first, second = result.output.splitlines()
    assert heading.startswith(f"{segment}  segment, ")
    assert first.startswith("  offsets 5 to 5, 1 record, ")
    assert "zstd, producer 1000 epoch 1 sequences 7 to 9" in second


def test_records_are_shown_when_asked(segment: Path) -> None:
    result = dump(segment, "--records", "--json")
    entries = [json.loads(line) for line in result.output.splitlines()]
    records = [entry for entry in entries if "headers" in entry]
    assert [(r["offset"], r["timestamp"] - DAY_MS) for r in records] == [(5, 0), (6, 0), (7, 1), (8, 2)]
    assert (records[0]["key"], records[0]["value"], records[0]["headers"]) == (
        "k",
        "high",
        [{"name": "h", "value": "1"}],
    )
    assert records[1]["value_base64"] == "/zA="


def test_a_flipped_bit_is_named_and_fails_the_command(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    result = dump(segment.parent)
    assert result.exit_code == 1
    assert "DAMAGED" in result.output
    assert "wrong checksum" in result.output
    assert "1 of the files is damaged" in result.output


def test_a_torn_end_is_named(segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[:-10])
    result = dump(segment)
    assert result.exit_code == 1
    assert "DAMAGED" in result.output


def test_indexes_and_checkpoints_are_told_in_words(tmp_path: Path) -> None:
    disk = RealDisk()
    (tmp_path / "00000000000000000100.index").write_bytes(OFFSET_ENTRY.pack(7, 4096) + bytes(OFFSET_ENTRY.size))
    (tmp_path / "00000000000000000100.timeindex").write_bytes(TIME_ENTRY.pack(DAY_MS, 9))
    write_epochs(disk, str(tmp_path / "leader-epoch-checkpoint"), [(0, 0), (3, 120)])
    write_offsets(disk, str(tmp_path / "recovery-point-offset-checkpoint"), {("tides", 0): 12})
    write_partition_metadata(disk, str(tmp_path / "partition.metadata"), bytes(range(16)))
    result = dump(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    entries = [json.loads(line) for line in result.output.splitlines()]
    told = {(entry.pop("kind"), json.dumps({k: v for k, v in entry.items() if k != "file"})) for entry in entries}
    assert told == {
        ("offset index", '{"offset": 107, "position": 4096}'),
        ("time index", f'{{"timestamp": {DAY_MS}, "offset": 109}}'),
        ("leader epochs", '{"leader_epoch": 0, "start_offset": 0}'),
        ("leader epochs", '{"leader_epoch": 3, "start_offset": 120}'),
        ("offsets checkpoint", '{"topic": "tides", "partition": 0, "offset": 12}'),
        ("partition metadata", '{"version": "0"}'),
        ("partition metadata", '{"topic_id": "AAECAwQFBgcICQoLDA0ODw"}'),
    }


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    result = dump(other)
    assert result.exit_code == 1
    assert "is no file of a data folder" in result.output


def test_everything_that_a_broker_wrote_can_be_told(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        Admin(broker.bootstrap).create_topic(
            "tides", 2, 1, {"segment.bytes": "1048576", "index.interval.bytes": "1000"}
        )
        with Producer(broker.bootstrap, enable_idempotence=True, batch_size=20_000) as producer:
            for number in range(3000):
                producer.send("tides", b"x" * 1000 + b"%d" % number, key=b"%d" % number)
        broker.restart()
        running = dump(tmp_path, *tmp_path.glob("tides-*"), "--json")
        assert running.exit_code == 0, running.output[-2000:]
    result = dump(tmp_path, *tmp_path.glob("*-0"), "--records", "--json")
    assert result.exit_code == 0, result.output[-2000:]
    entries = [json.loads(line) for line in result.output.splitlines()]
    kinds = {entry["kind"] for entry in entries}
    assert kinds >= {
        "segment",
        "offset index",
        "time index",
        "producer snapshot",
        "leader epochs",
        "offsets checkpoint",
        "partition metadata",
        "folder properties",
        "quorum state",
        "metadata snapshot",
        "clean shutdown mark",
    }
    types = {entry["type"] for entry in entries if "type" in entry}
    assert types >= {"LeaderChangeMessage", "RegisterBrokerRecord", "TopicRecord", "PartitionRecord", "ConfigRecord"}
    assert {entry["producer_id"] for entry in entries if entry["kind"] == "producer snapshot"}


def test_what_a_journal_knows_can_be_told(tmp_path: Path) -> None:
    """Of a broker that runs, whose segments may not be durable yet; and where it is damaged, that is said."""
    with Broker({"tidelog.durability": "fsync", "tidelog.journal.bytes": "1048576"}, data=tmp_path) as broker:
        Admin(broker.bootstrap).create_topic("tides", 1, 1)
        values = [f"record {number}" for number in range(40)]
        with Producer(broker.bootstrap) as producer:
            for value in values:
                producer.send("tides", value)
                producer.flush()
        result = dump(tmp_path, "--records", "--json")
        assert result.exit_code == 0, result.output[-2000:]
        journals = [path.read_bytes() for path in sorted(tmp_path.glob("tidelog-journal-?"))]
    entries = [json.loads(line) for line in result.output.splitlines()]
    told = [entry for entry in entries if entry["kind"] == "journal"]
    blocks = [entry for entry in told if "block" in entry]
    assert {(entry["topic"], entry["partition"], entry["segment"]) for entry in blocks} == {("tides", 0, 0)}
    records = [entry["value"] for entry in told if "headers" in entry]
    assert records, "the first ones are synced themselves, until there is a journal"
    assert records == values[-len(records) :]
    damaged = tmp_path / "tidelog-journal-9"
    written = max(journals, key=lambda data: len(data.rstrip(bytes(1))))
    first = next(entry for entry in blocks)
    damaged.write_bytes(written[: first["position"]] + b"damage" + written[first["position"] + 6 :])
    broken = dump(damaged)
    assert broken.exit_code == 1
    assert "DAMAGED position 0: a block is damaged, and sound ones are behind it" in broken.output
