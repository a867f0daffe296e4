"""Records once more: tables, or stretches of a topic, into a topic. At least once: a cut leaves what was sent."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tidelog.client import ClientError, Producer, read
from tidelog.client.start import Start
from tidelog.rpc import EARLIEST, LATEST, Cluster, Options, list_offsets
from tidelog.spark.pipeline.sinks.json_rows import json_of, key_of

TELL_S = 1.0
Tell = Callable[[int], None]


class _Counter:
    """Counts, and says so about once a second."""

    def __init__(self, tell: Tell) -> None:
        self.count = 0
        self._tell = tell
        self._next = time.monotonic() + TELL_S

    def one_more(self) -> None:
        self.count += 1
        if self.count % 100 == 0 and time.monotonic() >= self._next:
            self._tell(self.count)
            self._next = time.monotonic() + TELL_S


def replay_topic(
    bootstrap: str, topic: str, to: str, start: Start, end: Start | None, partitions: list[int] | None, tell: Tell
) -> int:
    """Copy the records of a topic from one place to another (its end now) into a topic, partition by partition."""
    counter = _Counter(tell)
    with Cluster(bootstrap, Options(patience_s=30)) as cluster, _producer(bootstrap) as producer:
        there = sorted(cluster.topic(topic).partitions)
        if absent := [each for each in partitions or () if each not in there]:
            raise ClientError(f"{topic} has no partition {absent[0]}: it has {len(there)}, numbered from 0")
        for partition in _begun(cluster, topic, partitions or there, start):
            last = _end(cluster, topic, partition, end)
            if last is not None and start.kind == "offset" and start.value >= last:
                continue
            records = read(
                bootstrap,
                topic,
                start=start,
                partitions=[partition],
                stop_at_end=True,
                isolation_level="read_committed",
            )
            for record in records:
                if last is not None and record.offset >= last:
                    break
                came = ("tidelog.replayed", f"{topic}-{partition}:{record.offset}".encode())
                at = max(record.timestamp_ms, 0)
                producer.send(to, record.value, key=record.key, headers=[*record.headers, came], timestamp_ms=at)
                counter.one_more()
    return counter.count


def _begun(cluster: Cluster, topic: str, partitions: list[int], start: Start) -> list[int]:
    """The partitions that have something from `start` on; ClientError, before anything is sent, where it is gone."""
    if start.kind != "offset":
        return partitions
    places = [(topic, partition) for partition in partitions]
    first = list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    last = list_offsets(cluster, dict.fromkeys(places, LATEST))
    for place in places:
        if start.value < first[place].offset:
            raise ClientError(
                f"{topic}-{place[1]} begins at offset {first[place].offset}: {start.value} is gone; nothing was sent",
                "use --from beginning, or an offset that is there",
            )
    return [partition for _, partition in places if start.value < last[topic, partition].offset]


def _end(cluster: Cluster, topic: str, partition: int, end: Start | None) -> int | None:
    """The offset to stop before; None at the end of the partition."""
    if end is None or end.kind == "end":
        return None
    if end.kind == "offset":
        return end.value
    if end.kind != "time":
        raise ClientError(f"--until {end.kind}: name an offset, a time, or how long ago")
    offset = list_offsets(cluster, {(topic, partition): end.value})[topic, partition].offset
    return None if offset < 0 else offset


def replay_table(bootstrap: str, path: Path, to: str, key: str | None, tell: Tell) -> int:
    """Send the rows of a Parquet folder or file to a topic, as JSON; how many."""
    table = _table(path)
    names = [name for name in table.schema.names if not name.startswith(("_", "tidelog_"))]
    if key is not None and key not in names:
        raise ClientError(f"{path} has no column {key}", f"it has {', '.join(names)}")
    counter = _Counter(tell)
    columns = [(json.dumps(name, ensure_ascii=False), name, json_of(table.schema.field(name).type)) for name in names]
    key_text = None if key is None else key_of(table.schema.field(key).type)
    with _producer(bootstrap) as producer:
        for row in _rows(table, names):
            chosen = None if key_text is None or key is None or row[key] is None else key_text(row[key])
            value = "{" + ",".join(f"{quoted}:{text(row[name])}" for quoted, name, text in columns) + "}"
            producer.send(to, value.encode(), key=chosen.encode() if isinstance(chosen, str) else chosen)
            counter.one_more()
    return counter.count


def _producer(bootstrap: str) -> Producer:
    """Keys come to the partitions where Java's producers, and Spark's sink, send them."""
    return Producer(bootstrap, enable_idempotence=True, partitioner="murmur2_random")


def _table(path: Path) -> Any:
    """All files as one table with the columns of every one of them, not of the first."""
    import pyarrow
    import pyarrow.dataset

    arrow: Any = pyarrow
    library: Any = pyarrow.dataset
    options: dict[str, Any] = {"format": "parquet", "partitioning": "hive", "exclude_invalid_files": True}
    dataset = library.dataset(str(path), **options)
    if not dataset.files:
        raise ClientError(f"{path} holds no Parquet files")
    shapes = [fragment.physical_schema for fragment in dataset.get_fragments()]
    whole = arrow.unify_schemas([*shapes, dataset.schema], promote_options="permissive")
    return library.dataset(str(path), schema=whole, **options)


def _rows(table: Any, names: list[str]) -> Iterator[dict[str, Any]]:
    wanted = [*names, "_tombstone"] if "_tombstone" in table.schema.names else names
    for batch in table.to_batches(columns=wanted, batch_readahead=1, fragment_readahead=1):
        for row in batch.to_pylist():
            if not row.pop("_tombstone", False):
                yield row
