"""Records once more: dead letters back to where they came from, and tables or stretches of a topic into a topic."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidelog.client import ClientError, Producer, read
from tidelog.client.consumer import Message
from tidelog.client.start import Start
from tidelog.rpc import Cluster, Options
from tidelog.rpc.groups import commit_offsets, committed_offset

ORIGIN = "tidelog.topic"
COMMIT_EVERY = 1000


def redrive(bootstrap: str, dead: str, to: str | None, limit: int | None, *, dry_run: bool = False) -> dict[str, int]:
    """Send dead letters to the topics they came from (or `to`), each once; how many went where.

    Where it stopped is kept as the offsets of a group, so that the next call goes on from there. Records that arrive
    meanwhile are left for it.
    """
    group = f"redrive-{dead}"
    sent: dict[str, int] = {}
    with Cluster(bootstrap, Options(patience_s=30)) as cluster:
        partitions = sorted(cluster.topic(dead).partitions)
        for partition in partitions:
            known = committed_offset(cluster, group, (dead, partition))
            _redrive_partition(
                cluster, bootstrap, (dead, partition), known[0] if known else 0, group, to, limit, sent, dry_run
            )
    return sent


def _redrive_partition(
    cluster: Cluster,
    bootstrap: str,
    place: tuple[str, int],
    start: int,
    group: str,
    to: str | None,
    limit: int | None,
    sent: dict[str, int],
    dry_run: bool,
) -> None:
    at = Start("offset", start) if start else Start("beginning")
    letters = read(
        bootstrap, place[0], start=at, partitions=[place[1]], stop_at_end=True, isolation_level="read_committed"
    )
    with Producer(bootstrap, enable_idempotence=True) as producer:
        for letter in letters:
            if limit is not None and sum(sent.values()) >= limit:
                break
            target = to or _origin(letter)
            headers = [(name, value) for name, value in letter.headers if not name.startswith("tidelog.")]
            if not dry_run:
                producer.send(target, letter.value, key=letter.key, headers=headers)
            sent[target] = sent.get(target, 0) + 1
            if not dry_run and sum(sent.values()) % COMMIT_EVERY == 0:
                producer.flush()
                commit_offsets(cluster, group, {place: letter.offset + 1})
            start = letter.offset + 1
        if not dry_run:
            producer.flush()
            commit_offsets(cluster, group, {place: start})


def _origin(letter: Message) -> str:
    for name, value in letter.headers:
        if name == ORIGIN and value is not None:
            return value.decode()
    raise ClientError(
        f"{letter.topic}-{letter.partition} offset {letter.offset} has no header {ORIGIN}: it is no dead letter",
        "name the topic to send it to with --to",
    )


def replay_topic(
    bootstrap: str, topic: str, to: str, start: Start, end: Start | None, partitions: list[int] | None
) -> int:
    """Copy the records of a topic from one place to another (its end now) into a topic; how many."""
    count = 0
    found = read(
        bootstrap, topic, start=start, partitions=partitions, stop_at_end=True, isolation_level="read_committed"
    )
    with Producer(bootstrap, enable_idempotence=True) as producer:
        for record in found:
            if _beyond(record, end):
                continue
            headers = [*record.headers, ("tidelog.replayed", f"{topic}-{record.partition}:{record.offset}".encode())]
            producer.send(to, record.value, key=record.key, headers=headers, timestamp_ms=max(record.timestamp_ms, 0))
            count += 1
    return count


def _beyond(record: Message, end: Start | None) -> bool:
    if end is None:
        return False
    return record.offset >= end.value if end.kind == "offset" else record.timestamp_ms >= end.value


def replay_table(bootstrap: str, path: Path, to: str, key: str | None) -> int:
    """Send the rows of a Parquet folder or file to a topic, as JSON; how many."""
    import pyarrow.dataset

    library: Any = pyarrow.dataset
    table = library.dataset(str(path), format="parquet", partitioning="hive", exclude_invalid_files=True)
    names = [name for name in table.schema.names if not name.startswith(("_", "tidelog_"))]
    if key is not None and key not in names:
        raise ClientError(f"{path} has no column {key}", f"it has {', '.join(names)}")
    count = 0
    with Producer(bootstrap, enable_idempotence=True) as producer:
        for row in _rows(table, names):
            chosen = None if key is None or row[key] is None else str(row[key]).encode()
            producer.send(to, json.dumps(row, default=str).encode(), key=chosen)
            count += 1
    return count


def _rows(table: Any, names: list[str]) -> Iterator[dict[str, Any]]:
    wanted = [*names, "_tombstone"] if "_tombstone" in table.schema.names else names
    for batch in table.to_batches(columns=wanted):
        for row in batch.to_pylist():
            if not row.pop("_tombstone", False):
                yield row
