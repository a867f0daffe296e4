"""A log that is kept in memory (`tidelog.storage=memory`): same API, nothing on disk, bounded by `retention.bytes`.

It is empty after a restart and goes on at the next offset: an upper bound of its end is reserved on disk, off the loop
and ahead of time, in steps of millions, so that hardly anybody waits for the disk. Whoever does, as the first one who
writes to a log does after a start, waits as for a sync: until the offsets are reserved the records are not durable,
nobody is shown them, and no producer is told where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.setting import LONG_MAX
from tidelog.log import retention
from tidelog.log.bounds import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, OFFSET_SPAN_MAX, RESERVED_AHEAD, RESERVED_OFFSETS
from tidelog.log.ends import Ends
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.log import Log
from tidelog.log.names import LOG
from tidelog.log.segment import NEVER, Segment
from tidelog.log.validate import too_large_for_segment
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.env.network import Buffer, Socket
    from tidelog.env.promise import Promise
    from tidelog.log.store import Store

AGAIN_S = 1.0


class MemoryFile:
    """A segment in memory: a buffer of fixed size, filled from the front. What was written is never changed."""

    __slots__ = ("_buffer", "_used", "path", "suspect")

    def __init__(self, path: str, capacity: int) -> None:
        self.path = path
        self.suspect = False
        self._buffer = memoryview(bytearray(capacity))
        self._used = 0

    @property
    def capacity(self) -> int:
        return len(self._buffer)

    def size(self) -> int:
        return self._used

    def append(self, data: Buffer) -> None:
        end = self._used + len(data)
        self._buffer[self._used : end] = data
        self._used = end

    def append_all(self, parts: list[Buffer]) -> None:
        for part in parts:
            self.append(part)

    def read(self, pos: int, count: int) -> bytes:
        return bytes(self._buffer[pos : min(pos + count, self._used)])

    def view(self, pos: int, count: int) -> memoryview:
        return self._buffer[pos : pos + count]

    def truncate(self, size: int) -> None:
        """In a buffer of its own, since readers may still hold views of the old one."""
        fresh = memoryview(bytearray(self.capacity))
        fresh[:size] = self._buffer[:size]
        self._buffer, self._used = fresh, size

    def start_sync(self) -> None:
        """There is nothing to begin."""

    def sync(self) -> None:
        """Memory is as durable as it gets."""

    def send(self, sock: Socket, pos: int, count: int) -> int:
        return sock.send(self._buffer[pos : pos + count])


class MemoryLog(Log):
    """A partition in memory. `reserved` is the offset up to which the restart mark on disk reaches.

    `created_ms` of its segments is when they were last known to be written to: there are no files to tell.
    """

    __slots__ = ("_bytes", "_looked_end", "_reserving", "reserved")

    def __init__(
        self, store: Store, root: str, topic: str, partition: int, topic_id: bytes, config: TopicConfig, end: int
    ) -> None:
        self._bytes = 0
        self._looked_end = end
        self._reserving = False
        self.reserved = end
        super().__init__(store, root, topic, partition, topic_id, config)
        self.ends = Ends(end)
        self.unsynced.request()  # for good: the group commit has nothing to do with it
        self._follow()

    def _count_unsynced(self) -> None:
        self._follow()

    def _follow(self) -> None:
        """What is written is durable where its offsets are reserved; else the log is as durable as it was."""
        self.unreserved = self.ends.log_end > self.reserved
        self.ends.count_unsynced(0 if self.unreserved else LONG_MAX, all_at_once=not self.unreserved)

    @property
    def may_lose(self) -> bool:
        """Nothing of it is on disk."""
        return False

    @property
    def epochs(self) -> LeaderEpochs:
        if self._epochs is None:
            self._epochs = LeaderEpochs()
        return super().epochs

    def begin(self) -> None:
        """It has no files."""

    def _make_room(self, size: int, last: int, max_timestamp: int, now_ms: int) -> Segment:
        if self.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)
        if size > self.config.segment_size:
            raise too_large_for_segment(self.place, size, self.config)
        segment = self.segments.active
        if segment is None or segment.size + size > _capacity(segment) or last > segment.base + OFFSET_SPAN_MAX:
            segment = self._begin_chunk(size, now_ms)
        segment.offset_limit = min(segment.base + OFFSET_SPAN_MAX, self._reserve(last))
        segment.roll_after = NEVER
        segment.size_limit = _capacity(segment)
        return segment

    # -- the offsets that a restart passes over

    def _reserve(self, last: int) -> int:
        """Have offsets reserved for a batch that ends at `last`; up to which one this needn't be called again."""
        if not self._reserving and last >= self.reserved - RESERVED_AHEAD:
            self._reserving = True
            end = last + RESERVED_OFFSETS
            self._store.reserve(self, end).on_done(lambda done: self._reservation_ended(end, done))
        if last >= self.reserved:
            self.unreserved = True
            self.ends.count_unsynced(0, all_at_once=False)
            return NEVER
        return self.reserved - (1 if self._reserving else RESERVED_AHEAD + 1)

    def _reservation_ended(self, end: int, done: Promise[None]) -> None:
        self._reserving = False
        if self.deleted or self.offline is not None:
            return
        if done.error is not None:  # the store said so; what was written waits
            self._store.env.loop.call_later(AGAIN_S, self._reserve_again)
            return
        self.reserved = end
        self.segments.recheck()
        durable_end = self.ends.durable_end
        self._follow()
        if self.unreserved:
            self._reserve(self.log_end)
        elif self.ends.durable_end > durable_end and self.listener is not None:
            self.listener.durable_advanced(self)

    def _reserve_again(self) -> None:
        if not self.deleted and self.offline is None:
            self._reserve(self.log_end)

    # -- chunks

    def _begin_chunk(self, size: int, now_ms: int) -> Segment:
        """A new chunk, twice as large as the last one while the log grows; the oldest go when all are too many."""
        limit = max(self.config.retention_bytes, 1)
        largest = max(CHUNK_BYTES_MIN, min(CHUNK_BYTES_MAX, limit // 8))
        active = self.segments.active
        grown = CHUNK_BYTES_MIN if active is None else min(largest, _capacity(active) * 2)
        capacity = max(size, grown)
        gone = self._going(limit - capacity)
        if gone:
            self.forget_segments(self.segments[:gone])
        if self.segments.active is not None:
            self.segments.active.created_ms = now_ms  # it is full: nothing is written to it from now on
        segment = Segment(self.place, self.log_end, now_ms)
        segment.begin(self.config)
        segment.stay_in_memory()
        segment.file = MemoryFile(segment.stem + LOG, capacity)
        self._bytes += capacity
        self.segments.add(segment)
        if gone:
            self._start_from(segment.base if len(self.segments) == 1 else self.segments.oldest)
        return segment

    def _going(self, most_bytes: int) -> int:
        """How many chunks, from the first, go so that the others have no more bytes than that."""
        gone, kept = 0, self._bytes
        segments = self.segments
        while gone < len(segments) and kept > most_bytes:
            behind = segments[gone + 1].base if gone + 1 < len(segments) else self.log_end
            if behind > self.durable_end:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{self.place} is full of records whose offsets are not reserved on disk yet",
                )
            kept -= _capacity(segments[gone])
            gone += 1
        return gone

    def _start_from(self, offset: int) -> None:
        if offset > self.log_start:
            self.ends.move_start(offset)
            self.epochs.truncate_from_start(offset)

    def forget_segments(self, going: list[Segment]) -> None:
        self.segments.drop({segment.base for segment in going})
        self._bytes = sum(map(_capacity, self.segments))

    def roll(self, now_ms: int) -> None:
        if self.segments.active is not None and self.segments.active.size:
            self._begin_chunk(0, now_ms)

    def written_ms(self, segment: Segment) -> int:
        return segment.created_ms

    def apply_retention(self, now_ms: int) -> None:
        """At once: nothing of it is on disk, so nothing has to be durable before it goes."""
        segments = self.segments
        if self.offline is None and segments:
            if segments.active is not None and self.log_end != self._looked_end:
                segments.active.created_ms = (
                    now_ms  # written to since the last look: records without times are that old
                )
                self._looked_end = self.log_end
            count = retention.look(self, self._store.starts.settled(self), now_ms)
            start = segments[count].base if count < len(segments) else self.log_end
            self.forget_segments(segments[:count])
            self._start_from(start)

    def truncate_to(self, offset: int) -> bool:
        segments = self.segments
        if offset >= self.log_end or not segments:
            self.epochs.truncate_from_end(self.log_end)
            return False
        if offset < segments.oldest:
            self.truncate_fully_and_start_at(offset, 0)
            return True
        number = segments.number(offset)
        segment = segments[number]
        found = segments.position(segment, offset)
        self.forget_segments(segments[number + 1 :])
        assert segment.file is not None
        assert segment.offsets is not None
        assert segment.times is not None
        segment.size = segment.size if found is None else found[0]
        segment.file.truncate(segment.size)
        segment.offsets.truncate(offset)
        segment.times.truncate(offset)
        segment.aborted(self._store.disk).truncate_to(offset)
        segment.max_timestamp, segment.max_timestamp_offset = segment.times.last
        segments.become_active(segment)
        self.ends.fall_back(offset, offset)
        self.ends.cut(offset)
        self._fell()
        self.epochs.truncate_from_end(offset)
        return True

    def begin_cut(self, offset: int) -> None:
        """It is done at once: nothing of it is on disk."""
        self.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        self.forget_segments(self.segments[:])
        self.epochs.clear()
        durable_end = min(self.ends.durable_end, offset)
        self.ends.start_at(offset)
        self.ends.fall_back(durable_end, offset)
        self._fell()

    def _fell(self) -> None:
        self._follow()
        self._forget_producers()
        self.segments.forget_positions()
        self.segments.recheck()


def _capacity(segment: Segment) -> int:
    file = segment.file
    assert isinstance(file, MemoryFile), "a chunk is never closed"
    return file.capacity
