"""Reading a shard's log to its end, a chunk at a time, so that the loop goes on meanwhile.

Records are folded into the state in chunks that take a few milliseconds. What is at the log's end may not be durable
yet (after a crash): the shard begins to decide when the high watermark has passed all that was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from tidelog.coordinator.bounds import CHUNK_BYTES, ENTRIES_A_STEP
from tidelog.coordinator.entry import Entry, LogEntry, Marker
from tidelog.coordinator.pairs import pairs
from tidelog.machine.machine import Position
from tidelog.wire.batch import CONTROL_FLAG, HEADER_BYTES, TRANSACTIONAL_FLAG, iterate, payload, records
from tidelog.wire.markers import read_marker

if TYPE_CHECKING:
    from tidelog.coordinator.shard import Kind, Shard
    from tidelog.env.slices import Steps
    from tidelog.wire.batch import BatchHeader

S = TypeVar("S")
L = TypeVar("L")


class Loading(Generic[S, L]):
    """A shard on its way: `step()` until it says that the end of the log is reached."""

    __slots__ = ("_kind", "_next", "_state", "_steps", "is_read", "shard")

    def __init__(self, kind: Kind[S, L], shard: Shard[S, L]) -> None:
        self._kind = kind
        self._next = shard.partition.log.log_start
        self._state = kind.empty
        self._steps = self._read_all()
        self.shard = shard
        self.is_read = False
        """The end of the log was reached; what is left is to wait for its commit."""

    def step(self) -> bool:
        """Fold some more; whether that was the last. KafkaError or MalformedError: it can't be read."""
        try:
            next(self._steps)
            return False
        except StopIteration:
            self.shard.machine.load(self._state)
            self.is_read = True
            return True

    def _read_all(self) -> Steps[None]:
        while (chunk := self._read_on()) is not None:
            entries, position = chunk
            some: list[LogEntry] = []
            for entry in entries:
                if type(entry) is Marker and self._kind.prepare is not None:
                    self._fold(some, position)
                    some = [(yield from self._kind.prepare(self._state, entry))]
                else:
                    some.append(entry)
                if len(some) >= ENTRIES_A_STEP:
                    self._fold(some, position)
                    some = []
                    yield
            self._fold(some, position)
            yield

    def _fold(self, entries: list[LogEntry], position: Position) -> None:
        self._state = self._kind.fold(self._state, entries, position)

    def _read_on(self) -> tuple[Iterator[LogEntry], Position] | None:
        """What one more chunk holds, and where that ends; None: there was no more."""
        log = self.shard.partition.log
        data = log.read_bytes(self._next, CHUNK_BYTES, log.log_end)
        if data is None:
            return None
        # A read begins with the batch that holds the offset.
        headers = [header for header in iterate(data) if header.next_offset > self._next]
        assert headers, f"{log.place}: nothing whole was read at offset {self._next}"
        last = headers[-1]
        self._next = last.next_offset
        position = Position(last.last_offset, last.leader_epoch, last.max_timestamp)
        return (entry for header in headers for entry in self._read(data, header)), position

    def _read(self, data: bytes, header: BatchHeader) -> Iterator[LogEntry]:
        decode = self._kind.types.decode
        attributes = header.attributes
        if attributes & CONTROL_FLAG:
            for record in records(data, header):
                committed, coordinator_epoch = read_marker(record)
                yield Marker(
                    header.producer_id, header.producer_epoch, committed, coordinator_epoch, offset=record.offset
                )
            return
        producer_id = header.producer_id if attributes & TRANSACTIONAL_FLAG else -1
        producer_epoch = header.producer_epoch
        section = bytes(payload(data, header)) if header.codec else data[header.pos + HEADER_BYTES : header.end]
        for delta, key, value in pairs(section, header.record_count):
            decoded = decode(key or b"", value)
            if decoded is not None:
                yield Entry(decoded[0], decoded[1], producer_id, producer_epoch, header.base_offset + delta)
