"""Apache Kafka's own tool reads what is written here: batches, producer snapshots, the transaction index."""

from pathlib import Path

import pytest
from tests.kafka.apache import tool

from tidelog.env.real_disk import RealDisk
from tidelog.log.aborted import AbortedIndex
from tidelog.log.producer_snapshot import encode_snapshot
from tidelog.log.producers import Completed, Producers
from tidelog.wire.batch import SEQUENCE_MAX, TRANSACTIONAL_FLAG, build
from tidelog.wire.markers import marker_record
from tidelog.wire.record import Record

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


def dump(path: Path) -> list[str]:
    """The lines of `kafka-dump-log`, without those that say what is being dumped."""
    shown = tool("DumpLogSegments", "--deep-iteration", "--files", str(path))
    assert shown.returncode == 0, shown.stderr
    return [line for line in shown.stdout.splitlines() if line.startswith(("baseOffset", "|", "producerId", "version"))]


def test_batches_of_every_codec_and_a_marker(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    found = [
        Record(timestamp=1000, key=b"k", value=b"value" * 30_000, headers=(("h", b"1"), ("n", None))),
        Record(timestamp=999),
    ]
    log = b"".join(build(found, base_offset=2 * codec, leader_epoch=0, compression=codec) for codec in range(5))
    marker = [marker_record(3, 5, commit=False)]
    log += build(marker, base_offset=10, transactional=True, control=True, producer_id=6, producer_epoch=0)
    path.write_bytes(log)
    lines = dump(path)
    assert [line.split(" compresscodec: ")[1].split()[0] for line in lines if line.startswith("base")] == [
        "none",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
        "none",
    ]
    assert lines[10].startswith(
        "| offset: 6 CreateTime: 1000 keySize: 1 valueSize: 150000 sequence: -1 headerKeys: [h,n]"
    )
    assert lines[11].startswith("| offset: 7 CreateTime: 999 keySize: -1 valueSize: -1")
    assert lines[-1].endswith("endTxnMarker: ABORT coordinatorEpoch: 3")
    assert all("isvalid: true" in line for line in lines if line.startswith("base"))


def test_a_producer_snapshot(tmp_path: Path) -> None:
    producers = Producers()
    producers.record(5, 1, SEQUENCE_MAX - 1, 0, 3, 1000, 0)
    producers.record(6, 0, 0, 4, 4, 1001, TRANSACTIONAL_FLAG)
    path = tmp_path / "00000000000000000005.snapshot"
    path.write_bytes(encode_snapshot(producers.items()))
    assert dump(path) == [
        "producerId: 5 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1000 firstSequence: 2147483646 lastSequence: 1 lastOffset: 3 offsetDelta: 3 timestamp: 1000",
        "producerId: 6 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[4] "
        "lastTimestamp: 1001 firstSequence: 0 lastSequence: 0 lastOffset: 4 offsetDelta: 0 timestamp: 1001",
    ]


def test_the_transaction_index(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    AbortedIndex(RealDisk(), str(path)).append(Completed(6, 4, 9, True, 10))
    assert dump(path) == ["version: 0 producerId: 6 firstOffset: 4 lastOffset: 9 lastStableOffset: 10"]
