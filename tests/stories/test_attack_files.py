"""Each file of a data folder damaged, one at a time: the broker says so, and never shows anything that isn't true.

It starts and has everything; or it starts with that one partition offline or cut, and a line in its log; or it refuses
to start and names the file. Records that come back are the ones that were sent.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.batches import Batch, Sent, batches
from tests.raw import Connection
from tests.reading import EARLIEST, LATEST, create_topic, fetch, list_offset
from tests.served import Tidelog
from tidelog.wire.keys import ApiKey

SETTINGS = {"log.segment.bytes": "1048576"}
PARTITIONS = (("large", 0), ("small", 0), ("small", 1))
Values: TypeAlias = "list[bytes | None]"

DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "flipped": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 0x10]) + data[len(data) // 2 + 1 :],
    "halved": lambda data: data[: len(data) // 2],
    "emptied": lambda data: b"",
    "deleted": lambda data: None,
    "garbage": lambda data: bytes(range(256)),
}
QUICK = [
    ("__cluster_metadata-0/00000000000000000000.log", "halved"),
    ("__cluster_metadata-0/partition.metadata", "flipped"),
    ("__cluster_metadata-0/quorum-state", "garbage"),
    ("large-0/00000000000000000000.log", "halved"),
    ("large-0/00000000000000000010.log", "deleted"),
    ("large-0/00000000000000000010.index", "garbage"),
    ("small-0/00000000000000000000.log", "emptied"),
    ("small-0/partition.metadata", "garbage"),
    ("recovery-point-offset-checkpoint", "halved"),
    ("meta.properties", "deleted"),
]


def written(folder: Path, *, clean: bool) -> dict[tuple[str, int], Values]:
    """Fill a data folder; what each of its partitions holds."""
    held: dict[tuple[str, int], Values] = {partition: [] for partition in PARTITIONS}
    with Tidelog(folder, SETTINGS) as broker:
        create_topic(broker.bootstrap, "large")
        create_topic(broker.bootstrap, "small", 2)
        with Connection(broker.bootstrap) as connection:
            for topic, index in PARTITIONS:
                for number in range(25):
                    value = (b"%d|" % number).ljust(100_000 if topic == "large" else 50, b".")
                    data = {"index": index, "records": Batch([Sent(value)]).encode()}
                    topics = [{"name": topic, "partition_data": [data]}]
                    request = {"acks": -1, "timeout_ms": 5000, "topic_data": topics}
                    answer = connection.ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0]
                    assert answer.error_code == 0
                    held[topic, index].append(value)
        if clean:
            broker.stop()
    return held


def shown(bootstrap: str, topic: str, index: int) -> tuple[int, int, dict[int, bytes | None]] | None:
    """(start, end, what is at each offset) of a partition; None where it is offline."""
    with Connection(bootstrap) as connection:
        try:
            start, end = (list_offset(connection, topic, which, index) for which in (EARLIEST, LATEST))
        except AssertionError:
            return None
        found: dict[int, bytes | None] = {}
        at = start
        while at < end:
            answer = fetch(connection, topic, at, index)
            if answer.error_code:
                return None
            read = [batch for batch in batches(bytes(answer.records or b"")) if batch.next_offset > at]
            for batch in read:
                if not batch.crc_is_right or batch.base_offset > end:
                    return start, end, found  # what a client would notice, and refuse
                found.update({offset: value for offset, _, value in batch.values()})
                at = batch.next_offset
            if not read:
                return None
        return start, end, found


def check(folder: Path, name: str, damage: str, held: dict[tuple[str, int], Values]) -> None:
    path = folder / name
    changed = DAMAGE[damage](path.read_bytes()) if path.stat().st_size else None
    path.unlink() if changed is None else path.write_bytes(changed)
    broker = Tidelog(folder, SETTINGS)
    broker.output.unlink(missing_ok=True)
    try:
        broker.start()
    except AssertionError:
        assert folder.name in broker.said(), f"{name} {damage}: refused without saying why:\n{broker.said()}"
        assert "Traceback" not in broker.said(), broker.said()
        assert sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(("-delete", "-stray"))) == []
        return
    try:
        for (topic, index), values in held.items():
            seen = shown(broker.bootstrap, topic, index)
            if seen is None:
                assert "offline" in broker.said() or "no topic has" in broker.said(), f"{name} {damage}"
                continue
            _, _, found = seen
            for offset, value in found.items():
                assert value == values[offset], f"{name} {damage}: {topic}-{index} has a wrong record at {offset}"
            if len(found) < len(values) and not (name.endswith(".log") and damage in ("flipped", "emptied", "deleted")):
                assert broker.said(), f"{name} {damage}: records are missing, and nothing was said"
        assert "Traceback" not in broker.said(400), broker.said(400)
    finally:
        broker.kill()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_damaged_file_is_told_of_and_nothing_untrue_is_shown(tmp_path: Path, clean: bool) -> None:
    held = written(tmp_path / "whole", clean=clean)
    for number, (name, damage) in enumerate(QUICK):
        if (tmp_path / "whole" / name).exists():
            folder = tmp_path / f"copy{number}"
            shutil.copytree(tmp_path / "whole", folder)
            check(folder, name, damage, held)
            shutil.rmtree(folder)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_every_file_damaged_in_every_way(tmp_path: Path, clean: bool) -> None:
    held = written(tmp_path / "whole", clean=clean)
    for parent, _, names in os.walk(tmp_path / "whole"):
        for name in sorted(names):
            for damage in DAMAGE:
                folder = tmp_path / "copy"
                shutil.copytree(tmp_path / "whole", folder)
                check(folder, str((Path(parent) / name).relative_to(tmp_path / "whole")), damage, held)
                shutil.rmtree(folder)


@pytest.mark.parametrize("gone", ["__cluster_metadata-0", "__cluster_metadata-0 meta.properties bootstrap.checkpoint"])
def test_a_folder_that_lost_its_metadata_is_refused_and_its_partitions_stay(tmp_path: Path, gone: str) -> None:
    folder = tmp_path / "data"
    written(folder, clean=True)
    for name in gone.split():
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    broker = Tidelog(folder, SETTINGS)
    with pytest.raises(AssertionError):
        broker.start()
    assert "restore the metadata log" in broker.said()
    assert "Traceback" not in broker.said()
    assert sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) == before
