"""What is there when all faults are over: every partition read from its start, what groups committed, and each
replica's own files."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tools.chaos.checker import Finding, name_of
from tools.chaos.history import Final, Place, Stored

READ_S = 90.0


class Partition:
    """One that is being read; `end` is where its reader came to the end."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str]] = []
        self.end: int | None = None


def read_all(
    bootstrap: str, places: Iterable[Place], *, committed: bool, within_s: float = READ_S
) -> dict[Place, Partition]:
    """From the first record to the end; a partition whose end isn't reached within the time has None."""
    found = {place: Partition() for place in places}
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "final",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(*place, 0) for place in found])
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and any(one.end is None for one in found.values()):
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            partition = found.get((message.topic(), message.partition()))
            if partition is None:
                continue
            if error is None:
                partition.records.append((message.offset(), message.value().decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                partition.end = message.offset()
    consumer.close()
    return found


def read_final(bootstrap: str, places: list[Place], groups: Iterable[str]) -> tuple[Final, list[Finding]]:
    """And what could not be read: a partition without an end, or a transaction that stays open."""
    everything = read_all(bootstrap, places, committed=False)
    deadline = time.monotonic() + READ_S
    while True:
        committed = read_all(bootstrap, places, committed=True)
        if all(one.end == everything[place].end for place, one in committed.items()) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    findings: list[Finding] = []
    final = Final()
    for place in places:
        all_of_it, shown = everything[place], committed[place]
        if all_of_it.end is None or shown.end is None:
            findings.append(Finding("stuck", name_of(place), f"could not be read to its end within {READ_S:.0f} s"))
        elif shown.end != all_of_it.end:
            what = f"read_committed ends at {shown.end}, and there is more up to {all_of_it.end}: an open transaction"
            findings.append(Finding("stuck", name_of(place), what))
        final.partitions[place] = Stored(all_of_it.records, shown.records)
    final.offsets = {group: committed_offsets(bootstrap, group, places) for group in groups}
    return final, findings


def committed_offsets(bootstrap: str, group: str, places: list[Place]) -> dict[Place, int]:
    """Of a group; its coordinator may have to be elected, and to read its log, before it answers."""
    consumer: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    deadline = time.monotonic() + READ_S
    try:
        while True:
            try:
                found = consumer.committed([TopicPartition(*place) for place in places], timeout=30.0)
                return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
    finally:
        consumer.close()


def until_drained(bootstrap: str, groups: dict[str, list[Place]], within_s: float = READ_S) -> list[Finding]:
    """Until each group has committed all that there is; the groups that don't come to it."""
    ends = read_all(bootstrap, {place for places in groups.values() for place in places}, committed=True)
    deadline = time.monotonic() + within_s
    while True:
        behind: list[Finding] = []
        for group, places in groups.items():
            done = committed_offsets(bootstrap, group, places)
            for place in places:
                records = ends[place].records
                if records and done.get(place, 0) <= records[-1][0]:
                    what = f"is at {done.get(place)} after {within_s:.0f} s, and the last record is {records[-1][0]}"
                    behind.append(Finding("stuck", f"{group} on {name_of(place)}", what))
        if not behind or time.monotonic() > deadline:
            return behind
        time.sleep(0.3)


def compare_replicas(folders: dict[int, Path], places: Iterable[Place]) -> list[Finding]:
    """Of nodes that were stopped in order: the batches of all replicas are the same, byte for byte, wherever their
    segments begin. None of these topics is compacted, and nothing of them is old enough to go."""
    found: list[Finding] = []
    for place in places:
        logs = {
            id: _log(folder / name_of(place)) for id, folder in folders.items() if (folder / name_of(place)).is_dir()
        }
        sizes = {id: len(log) for id, log in logs.items()}
        least = min(sizes.values(), default=0)
        if len({log[:least] for log in logs.values()}) > 1:
            ids = sorted(logs)
            first = min(_differ(logs[ids[0]], logs[id]) for id in ids[1:] if logs[id][:least] != logs[ids[0]][:least])
            found.append(Finding("replicas", name_of(place), f"differ from byte {first} on; they have {sizes} bytes"))
        elif len(set(sizes.values())) > 1:
            found.append(Finding("replicas", name_of(place), f"are not of one length: {sizes} bytes"))
    return found


def _log(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def _differ(one: bytes, other: bytes) -> int:
    """The first byte that isn't the same."""
    least = min(len(one), len(other))
    low, high = 0, least
    while low < high:
        middle = (low + high) // 2
        if one[: middle + 1] == other[: middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low
