"""A task's part: one or more ranges of offsets to Arrow batches, with memory of a few fetches whatever their size."""

import logging
import time
from collections.abc import Iterator
from typing import Any

from tidelog.rpc import Cluster
from tidelog.rpc.fetch import OffsetOutOfRange, PartitionReader
from tidelog.rpc.offsets import EARLIEST, list_offsets
from tidelog.spark.connections import cluster_of
from tidelog.spark.identity import short_id
from tidelog.spark.source.columns import Decoder, Range
from tidelog.spark.source.options import SourceOptions
from tidelog.spark.source.plan import WHY_LOST, OffsetRange
from tidelog.wire.batch import read_header
from tidelog.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("tidelog.spark")


class DataLost(RuntimeError):
    """Records that were to be read are gone. The message says which, and how to go on without them."""

    def __init__(self, what: str, why: str = WHY_LOST) -> None:
        super().__init__(f"{what}. {why}. To go on with what is left set failOnDataLoss=false")
        self.what, self.why = what, why

    def __reduce__(self) -> tuple[Any, ...]:
        return (DataLost, (self.what, self.why))


def read_range(options: SourceOptions, wanted: OffsetRange, topic_id: int | None = None) -> Iterator[Any]:
    """The rows of a range, in order; DataLost where some are gone, unless that is allowed.

    `topic_id`: the `short_id` of the topic that is meant.
    """
    cluster = cluster_of(options.bootstrap, options.rpc)
    start = wanted.start
    while start < wanted.end:
        part = OffsetRange(wanted.topic, wanted.partition, start, wanted.end)
        try:
            _check_topic(cluster, part, topic_id)
            yield from _read(cluster, options, part)
            return
        except _Gap as gap:
            start = _skipped(cluster, options, wanted, gap)


class _Gap(Exception):
    """An offset isn't there; in a topic that is another by now (`anew`), nor is any after it."""

    def __init__(self, position: int, *, anew: bool = False) -> None:
        super().__init__(position)
        self.position = position
        self.anew = anew


def _check_topic(cluster: Cluster, wanted: OffsetRange, topic_id: int | None) -> None:
    """_Gap where the topic is another one. It is looked at again for a while: what a broker knows of it may be old."""

    def look() -> None:
        if short_id(cluster.topic(wanted.topic).id) not in (topic_id, None):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"{wanted.topic} is not the topic that was planned to be read")

    try:
        if topic_id is not None:
            cluster.patiently("find the topic", look)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_ID:
            raise
        raise _Gap(wanted.start, anew=True) from error


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
    topic_id: bytes | None = None
    try:
        for part in reader:
            if topic_id not in (None, cluster.topic(wanted.topic).id):
                raise _Gap(position, anew=True)
            topic_id = cluster.topic(wanted.topic).id
            if part.log_start_offset > position and not _holds(part.records, position):
                raise _Gap(position)
            yield from decoder.feed(part.records, part.aborted)
            if part.next_offset > position:
                position, moved = part.next_offset, time.monotonic()
            elif time.monotonic() - moved > options.rpc.patience_s:
                what = f"{name} ends at offset {part.high_watermark}, and nothing came to reach {wanted.end} for "
                _lost(options, f"{what}{options.rpc.patience_s:g} s", None)
                return
    except OffsetOutOfRange as error:
        raise _Gap(position) from error
    except KafkaError as error:
        if name in str(error):
            raise
        raise KafkaError(error.code, f"{name} from offset {position}: {error.message}") from error


def _holds(records: memoryview, offset: int) -> bool:
    """Whether a fetch has the record of an offset that was let go of meanwhile."""
    return len(records) > 0 and read_header(records).base_offset <= offset


def _skipped(cluster: Cluster, options: SourceOptions, wanted: OffsetRange, gap: _Gap) -> int:
    """Where to go on after a gap, if that is allowed."""
    name, place = f"{wanted.topic}-{wanted.partition}", (wanted.topic, wanted.partition)
    begin = list_offsets(cluster, {place: EARLIEST})[place].offset
    moved = begin > gap.position and not gap.anew
    go_on = min(begin, wanted.end) if moved else wanted.end
    what = f"the offsets {gap.position} to {go_on - 1} of {name} are gone: " + (
        "it was deleted and made again while it was read" if gap.anew else f"it begins at {begin}"
    )
    if wanted.floating and moved and gap.position == wanted.start:
        logger.info("%s; it was to be read from wherever it begins", what)
    else:
        _lost(options, what, gap)
    return go_on


def _lost(options: SourceOptions, what: str, cause: Exception | None) -> None:
    """Fail on lost data, or say it and go on."""
    if options.fail_on_loss:
        raise DataLost(what) from cause
    logger.warning("%s; reading goes on with what is left", what)
