"""Reading a shard's log to its end, a chunk at a time, so that the loop goes on meanwhile.

Records are folded into the state in chunks that take a few milliseconds. What is at the log's end may not be durable
yet (after a crash): the shard begins to decide when the high watermark has passed all that was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from tidelog.coordinator.entry import Entry, LogEntry, Marker
from tidelog.coordinator.pairs import pairs
from tidelog.machine.machine import Position
from tidelog.wire.batch import CONTROL_FLAG, HEADER_BYTES, TRANSACTIONAL_FLAG, iterate, payload, records
from tidelog.wire.markers import read_marker

if TYPE_CHECKING:
    from tidelog.coordinator.shard import Kind, Shard
    from tidelog.wire.batch import BatchHeader

S = TypeVar("S")
L = TypeVar("L")

CHUNK_BYTES = 16 * 1024
"""What is read between two turns of the loop; a batch that is larger comes whole."""


class Loading(Generic[S, L]):
    """A shard on its way: `step()` until it says that the end of the log is reached."""

    __slots__ = ("_kind", "_next", "_state", "is_read", "shard")

    def __init__(self, kind: Kind[S, L], shard: Shard[S, L]) -> None:
        self._kind = kind
        self._next = shard.partition.log.log_start
        self._state = kind.empty
        self.shard = shard
        self.is_read = False
        """The end of the log was reached; what is left is to wait for its commit."""

    def step(self) -> bool:
        """Fold one more chunk; whether that was the last. KafkaError or MalformedError: it can't be read."""
        log = self.shard.partition.log
        piece = log.read(self._next, CHUNK_BYTES, log.log_end)
        if piece is None:
            self.shard.machine.load(self._state)
            self.is_read = True
            return True
        data = bytes(piece.view())  # slices of bytes are cheaper than those of a view, and there are many
        entries: list[LogEntry] = []
        last: BatchHeader | None = None
        for header in iterate(data):
            if header.next_offset > self._next:  # a read begins with the batch that holds the offset
                self._read(data, header, entries)
                self._next = header.next_offset
                last = header
        assert last is not None, f"{log.place}: nothing whole was read at offset {self._next}"
        position = Position(last.last_offset, last.leader_epoch, last.max_timestamp)
        self._state = self._kind.fold(self._state, entries, position)
        return False

    def _read(self, data: bytes, header: BatchHeader, entries: list[LogEntry]) -> None:
        decode = self._kind.types.decode
        attributes = header.attributes
        if attributes & CONTROL_FLAG:
            for record in records(data, header):
                committed, coordinator_epoch = read_marker(record)
                entries.append(
                    Marker(
                        header.producer_id, header.producer_epoch, committed, coordinator_epoch, offset=record.offset
                    )
                )
            return
        producer_id = header.producer_id if attributes & TRANSACTIONAL_FLAG else -1
        producer_epoch = header.producer_epoch
        section = bytes(payload(data, header)) if header.codec else data[header.pos + HEADER_BYTES : header.end]
        for delta, key, value in pairs(section, header.record_count):
            decoded = decode(key or b"", value)
            if decoded is not None:
                offset = header.base_offset + delta
                entries.append(Entry(decoded[0], decoded[1], producer_id, producer_epoch, offset))
