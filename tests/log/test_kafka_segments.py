"""Apache Kafka's own tool finds nothing wrong with our segments and indexes."""

from pathlib import Path

import pytest
from tests.batches import GZIP, ZSTD, Batch, Producer, Sent
from tests.kafka.apache import tool
from tests.log.harness import NOW_MS, LogHarness, append, send

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


def dump(files: list[Path], *options: str) -> str:
    """What kafka-dump-log says of the files; its complaints stand on stderr."""
    shown = tool("DumpLogSegments", *options, "--files", ",".join(map(str, files)))
    assert shown.returncode == 0, shown.stderr
    for complaint in ("Mismatches", "not found", "out of order", "Exception"):
        assert complaint not in shown.stdout + shown.stderr
    gaps = [line.strip() for line in shown.stderr.splitlines() if "is followed by" in line]
    assert all(gap.startswith("-1 ") for gap in gaps), "it counts from -1 in every file, and calls that a gap"
    return shown.stdout


@pytest.mark.parametrize("ending", ["stopped", "killed", "recovered"])
def test_segments_indexes_and_snapshots(real: LogHarness, ending: str) -> None:
    log = real.log(internal_segment_bytes="15000", index_interval_bytes="500")
    times = (5, 3, 9, 1, 40, 2, 50, 7)
    for n in range(600):
        append(log, b"%d" % n, b"x" * (n % 90), now_ms=NOW_MS + 10 * n + times[n % 8])
        if n % 50 == 0:
            sent = [Sent(b"y" * 40, key=b"k", timestamp_delta=delta) for delta in (3, 99, 7)]
            made = Batch(sent, producer=Producer(4, 0, 3 * (n // 50)), codec=(GZIP, ZSTD)[n % 100 // 50])
            made.base_timestamp = NOW_MS + 10 * n
            send(log, made)
        if n == 450:
            real.flush(log)
    folder = Path(log.folder)
    if ending == "stopped":
        real.stop()
    else:
        real.flush(log)
        real.loop.kill()
        if ending == "recovered":
            real.start()
            real.log(internal_segment_bytes="15000", index_interval_bytes="500")
            real.stop()
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 4
    assert dump(logs, "--deep-iteration").count("isvalid: true") == 612
    indexes = sorted(folder.glob("*index"))
    assert len(indexes) == 2 * len(logs)
    assert dump(indexes, "--index-sanity-check").count("passed sanity check") == len(indexes)
    listed = dump(indexes)
    assert listed.count("position: ") > 100
    assert listed.count("timestamp: ") > 100
    assert "producerId: 4 producerEpoch: 0" in dump(sorted(folder.glob("*.snapshot"))[-1:])
