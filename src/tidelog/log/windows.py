"""The last five batches of producers that a snapshot brought back: it has one of each, the log may have the others.

They matter to a producer that sends one of its older batches again, right after a restart: it is told the offset of the
original. That is rare, and going through 200,000 batches takes long; so they are read when it happens, off the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidelog.env.promise import Promise
from tidelog.log.bounds import WINDOW, WINDOW_BYTES, WINDOW_RECORDS
from tidelog.log.names import LOG
from tidelog.log.producers import Appended
from tidelog.log.scan import BadBatch, HeaderFields, batches
from tidelog.wire.batch import CONTROL_FLAG, SEQUENCE_MAX
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from tidelog.env.disk import Disk
    from tidelog.log.log import Log
    from tidelog.log.producers import Producers
    from tidelog.log.segments import Segments
    from tidelog.log.serial_worker import SerialWorker


Short: TypeAlias = "Mapping[int, tuple[int, int]]"
"""Producers whose windows are short, by their ids: their epochs, and the first offsets that are known of them."""
Older: TypeAlias = "dict[int, list[Appended]]"
"""The batches that came before those, in order."""


class Range(NamedTuple):
    """Bytes [start, end) of a segment's file."""

    path: str
    start: int
    end: int


def ranges_before(segments: Segments, offset: int) -> list[Range]:
    """Where the batches before `offset` lie, as far back as the bounds allow."""
    number = segments.number(max(offset - WINDOW_RECORDS, segments[0].base))
    last = segments.number(offset)
    sizes = [segments.look(segments[n], n) for n in range(number, last + 1)]
    while number < last and sum(sizes[1:]) >= WINDOW_BYTES:
        number += 1
        del sizes[0]
    ranges: list[Range] = []
    for segment in segments[number : last + 1]:
        found = segments.position(segment, max(offset - WINDOW_RECORDS, segment.base))
        if found is not None:
            start = max(found[0], segments.indexes(segment).floor(segment.size - WINDOW_BYTES))
            ranges.append(Range(segment.stem + LOG, start, segment.size))
    return ranges


def read_older(disk: Disk, ranges: list[Range], offset: int, short: Short) -> Older:
    """Read them; none where the files changed meanwhile. For any thread."""
    try:
        headers = (
            fields
            for path, start, end in ranges
            for _, fields in batches(disk.open(path), start, end, check=False)
            if fields.base_offset < offset
        )
        return find_older(headers, short)
    except (FileNotFoundError, BadBatch):  # retention, compaction: what is gone can't be told
        return {}


def find_older(headers: Iterable[HeaderFields], short: Short) -> Older:
    """The batches of these producers, of which no window has more than it may, and none has a gap."""
    older: Older = {}
    known = short.get
    for base, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ in headers:
        producer = known(producer_id)
        if producer is None or epoch != producer[0] or base + delta >= producer[1] or attributes & CONTROL_FLAG:
            continue
        found = older.get(producer_id)
        if found is None:
            found = older[producer_id] = []
        elif found and sequence != (found[-1].last_sequence + 1) & SEQUENCE_MAX:
            found.clear()  # compaction took what was between
        if len(found) == WINDOW - 1:
            del found[0]
        last_sequence = (sequence + delta) & SEQUENCE_MAX if sequence >= 0 else -1
        found.append(Appended(sequence, last_sequence, base, base + delta, timestamp))
    return older


class WindowReads:
    """The logs whose windows are being read, one after the other."""

    def __init__(self, disk: Disk, serial_worker: SerialWorker) -> None:
        self._disk = disk
        self._serial_worker = serial_worker
        self._under_way: dict[Producers, Promise[None]] = {}

    def read(self, log: Log) -> Promise[None]:
        """Settled when the producers of the log have what their windows had, as far as the log tells."""
        producers = log.producers
        under_way = self._under_way.get(producers)
        if under_way is not None:
            return under_way
        if producers.unread < 0:
            return Promise[None].resolved(None)
        offset, disk, short = producers.unread, self._disk, producers.short_windows()
        done: Promise[None] = Promise()
        try:
            ranges = log.ranges_before(offset)
        except KafkaError:  # the log went offline, and whoever asks is told so
            done.resolve(None)
            return done

        def found(older: Promise[Older]) -> None:
            del self._under_way[producers]
            producers.refill({} if older.error is not None else older.result())
            done.resolve(None)

        self._under_way[producers] = done
        self._serial_worker.run(lambda: read_older(disk, ranges, offset, short)).on_done(found)
        return done
