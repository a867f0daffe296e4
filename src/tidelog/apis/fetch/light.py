"""A fetch as the fast path keeps it: what it asks of each partition, without messages of the codec.

It looks, answers with one Struct a partition, and parks where there is too little to answer with. Whatever is out of
the ordinary (an error, a partition that moved or went, aborted transactions) it leaves to the general way, which has
the frame then and answers at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from tidelog.env import Loop
    from tidelog.replica.partition import Partition

log = logging.getLogger("tidelog.fetch")

Asked: TypeAlias = "tuple[Partition, int, int, int, int]"
"""A partition, its index, the leader epoch that the client believes in, the offset, and how many bytes at most."""

NO_EPOCH = -1
FETCH = 1
# Header tags, throttle time, error, session id.
_START = bytes(11)
_FRAME = Struct(f">ii{len(_START)}s")
_FRAME_BYTES = _FRAME.size - 4
_write_frame = _FRAME.pack
# Index, error, high watermark, last stable offset, log start, aborted transactions, preferred replica; then the
# records' length, the records, and tags.
write_partition = Struct(">ihqqqBi").pack
_NO_RECORDS = b"\x01\0"
_write_max_wait = Struct(">i").pack_into


class Way:
    """What all fetches of the fast path share. `general` answers a whole frame of this connection."""

    __slots__ = ("general", "loop", "node_id")

    def __init__(
        self, node_id: int, loop: Loop, general: Callable[[Any, memoryview, int, int, int, int, int], Any]
    ) -> None:
        self.node_id = node_id
        self.loop = loop
        self.general = general


class LightFetch:
    """One request. Parked, it is a waiter of each of its partitions."""

    __slots__ = (
        "_committed",
        "_connection",
        "_correlation_id",
        "_frame",
        "_limit",
        "_min_bytes",
        "_slot",
        "_timer",
        "_topics",
        "_version",
        "_wait_at",
        "_wait_s",
        "_way",
        "done",
        "runs_ahead",
    )

    def __init__(
        self,
        way: Way,
        topics: list[tuple[bytes, list[Asked]]],
        bounds: tuple[int, int],
        *,
        committed: bool,
        version: int,
        correlation_id: int,
    ) -> None:
        """`bounds`: on the bytes of the answer, at least (or it waits) and at most."""
        self._way = way
        self._topics = topics
        self._min_bytes, self._limit = bounds
        self._committed = committed
        self._version = version
        self._correlation_id = correlation_id
        self._connection: Any = None
        self._frame = bytearray()
        self._wait_at = 0
        self._wait_s = 0.0
        self._slot: Any = None
        self._timer: Any = None
        self.done = False
        self.runs_ahead = False

    def look(self, *, at_once: bool) -> Any:
        """The answer; None where it is worth waiting; NotImplemented where it is the general way's."""
        node_id, committed = self._way.node_id, self._committed
        budget, found, at_least_one = self._limit, 0, True
        aborted, usual = 1 if committed else 0, True  # an empty list, or none
        pieces: list[Any] = []
        plain = bytearray()
        plain += uvarint(len(self._topics) + 1)
        for topic_id, asked in self._topics:
            plain += topic_id + uvarint(len(asked) + 1)
            for partition, index, epoch, offset, bytes_max in asked:
                if partition.deleted or partition.leader != node_id or NO_EPOCH != epoch != partition.leader_epoch:
                    return NotImplemented
                stored = partition.log
                high_watermark, start = partition.high_watermark, stored.log_start
                piece = None
                try:
                    stable = partition.last_stable_offset
                    end = stable if committed else high_watermark
                    if not (start <= end <= offset <= stored.log_end and stored.offline is None):
                        piece = stored.read(offset, min(bytes_max, budget), end, at_least_one=at_least_one)
                    if piece is not None and committed and stored.has_aborted and stored.aborted(offset, piece):
                        usual = False
                except KafkaError:
                    return NotImplemented
                if piece is None:
                    # Of a batch that is larger than the limit, no aborted transactions are told.
                    told = 0 if offset < end and bytes_max > 0 and budget > 0 else aborted
                    plain += write_partition(index, 0, high_watermark, stable, start, told, -1) + _NO_RECORDS
                    continue
                plain += write_partition(index, 0, high_watermark, stable, start, aborted, -1)
                size = len(piece)
                found += size
                budget = max(0, budget - size)
                at_least_one = False
                plain += uvarint(size + 1)
                pieces += bytes(plain), piece
                plain.clear()
                plain.append(0)
            plain.append(0)
        if found < self._min_bytes and not at_once:
            return None
        if not usual:
            return NotImplemented
        plain.append(0)
        pieces.append(bytes(plain))
        size = found + sum(map(len, pieces[::2]))
        pieces[0] = _write_frame(_FRAME_BYTES + size, self._correlation_id, _START) + pieces[0]
        return pieces

    # -- parked

    def patient(self, connection: Any, frame: bytearray, wait_at: int, wait_ms: int) -> LightFetch:
        """Itself, ready to wait so long. `frame` is for the general way; its patience stands at `wait_at`."""
        self._connection = connection
        self._frame = frame
        self._wait_at = wait_at
        self._wait_s = wait_ms / 1000
        return self

    def begin(self, slot: Any) -> None:
        self._slot = slot
        for _, asked in self._topics:
            for each in asked:
                each[0].park(self)
        self._timer = self._way.loop.call_later(self._wait_s, self.expire)

    def wake(self) -> None:
        if not self.done:
            self._look_again(at_once=False)

    def expire(self) -> None:
        if not self.done:
            self._look_again(at_once=True)

    def abandon(self) -> None:
        """The connection has gone: wait for nothing any more."""
        if not self.done:
            self._leave()

    def _look_again(self, *, at_once: bool) -> None:
        try:
            answer = self.look(at_once=at_once)
            if answer is NotImplemented:
                answer = self._unusual()
        except Exception:  # a bug of ours: those parked beside this one are woken all the same
            from tidelog.apis.fetch import frame

            log.exception("a parked fetch can't be answered")
            response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            answer = frame(self._version, self._correlation_id, response)
        if answer is not None:
            slot = self._slot
            self._leave()
            slot.complete(answer)

    def _unusual(self) -> Any:
        frame, version = self._frame, self._version
        _write_max_wait(frame, self._wait_at, 0)  # answered at once, whatever there is
        view = memoryview(frame)
        return self._way.general(self._connection, view, 0, len(frame), FETCH, version, self._correlation_id)

    def _leave(self) -> None:
        """Let go of whoever holds it: thousands a second must not wait for the garbage collector."""
        self.done = True
        self._timer.cancel()
        self._timer = self._slot = self._connection = None
        for _, asked in self._topics:
            for each in asked:
                each[0].unpark(self)


@lru_cache(256)  # sizes of answers: mostly the same few
def uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80)) + uvarint(value >> 21)
