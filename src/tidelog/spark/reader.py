"""A task's part: one or more ranges of offsets to Arrow batches, with memory of a few fetches whatever their size."""

import logging
import time
from collections.abc import Iterator
from typing import Any

from tidelog.rpc import Cluster
from tidelog.rpc.fetch import OffsetOutOfRange, PartitionReader
from tidelog.rpc.offsets import EARLIEST, list_offsets
from tidelog.spark.columns import Decoder, Range
from tidelog.spark.connections import cluster_of
from tidelog.spark.options import SourceOptions
from tidelog.spark.plan import OffsetRange

logger = logging.getLogger("tidelog.spark")


class DataLost(RuntimeError):
    """Records that were to be read are gone. The message says which, and how to go on without them."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Retention or a deletion was faster than this query, or the topic is another one. To go on with "
            "what is left set failOnDataLoss=false"
        )
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return (DataLost, (self.what,))


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[Any]:
    """The rows of a range, in order; DataLost where some are gone, unless that is allowed."""
    cluster = cluster_of(options.bootstrap, options.rpc)
    start = wanted.start
    while start < wanted.end:
        part = OffsetRange(wanted.topic, wanted.partition, start, wanted.end)
        try:
            yield from _read(cluster, options, part)
            return
        except _Gap as gap:
            start = _skipped(cluster, options, wanted, gap)


class _Gap(Exception):
    """An offset isn't there."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def _read(cluster: Cluster, options: SourceOptions, wanted: OffsetRange) -> Iterator[Any]:
    name = f"{wanted.topic}-{wanted.partition}"
    edges = Range(wanted.topic, wanted.partition, wanted.start, wanted.end)
    decoder = Decoder(edges, headers=options.headers, committed=options.committed)
    reader = PartitionReader(
        cluster,
        wanted.topic,
        wanted.partition,
        wanted.start,
        wanted.end,
        isolation=options.isolation,
        fetch_bytes=options.fetch_bytes,
    )
    position, moved = wanted.start, time.monotonic()
    try:
        for part in reader:
            if part.log_start_offset > position:
                raise _Gap(position)
            yield from decoder.feed(part.records, part.aborted)
            if part.next_offset > position:
                position, moved = part.next_offset, time.monotonic()
            elif time.monotonic() - moved > options.rpc.patience_s:
                raise DataLost(
                    f"{name} ends at offset {part.high_watermark}, and nothing came to reach {wanted.end} for "
                    f"{options.rpc.patience_s:g} s"
                )
    except OffsetOutOfRange as error:
        raise _Gap(position) from error


def _skipped(cluster: Cluster, options: SourceOptions, wanted: OffsetRange, gap: _Gap) -> int:
    """Where to go on after a gap, if that is allowed."""
    name, place = f"{wanted.topic}-{wanted.partition}", (wanted.topic, wanted.partition)
    begin = list_offsets(cluster, {place: EARLIEST})[place].offset
    go_on = min(begin, wanted.end) if begin > gap.position else wanted.end
    what = f"the offsets {gap.position} to {go_on - 1} of {name} are gone: it begins at {begin}"
    if options.fail_on_loss:
        raise DataLost(what) from gap
    logger.warning("%s; reading goes on without them", what)
    return go_on
