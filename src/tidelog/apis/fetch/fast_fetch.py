"""A fetch as the fast path keeps it: what it asks of each partition, without messages of the codec.

It looks, answers with one Struct a partition, and parks where there is too little to answer with. Whatever is out of
the ordinary (an error, a partition that moved or went, aborted transactions) it leaves to the general way, which has
the frame then and answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.apis.fetch.parked import Parked
from tidelog.env.slices import Steps
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from tidelog.env import Loop
    from tidelog.replica.partition import Partition

Asked: TypeAlias = "tuple[Partition, int, int, int, int]"
"""A partition, its index, the leader epoch that the client believes in, the offset, and how many bytes at most."""

NO_EPOCH = -1
FETCH = 1
LOOKS_A_STEP = 64
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


class FastPath:
    """What all fetches of the fast path share. `general` answers a whole frame of this connection."""

    __slots__ = ("general", "loop", "node_id")

    def __init__(
        self, node_id: int, loop: Loop, general: Callable[[Any, memoryview, int, int, int, int, int], Any]
    ) -> None:
        self.node_id = node_id
        self.loop = loop
        self.general = general


class FastFetch:
    """One request: what it asks for, and how it is answered."""

    __slots__ = (
        "_by_partition",
        "_committed",
        "_connection",
        "_correlation_id",
        "_frame",
        "_limit",
        "_path",
        "_topics",
        "_version",
        "_wait_at",
        "available_bytes",
        "count",
        "min_bytes",
    )

    def __init__(
        self,
        path: FastPath,
        topics: list[tuple[bytes, list[Asked]]],
        bounds: tuple[int, int],
        *,
        committed: bool,
        version: int,
        correlation_id: int,
    ) -> None:
        """`bounds`: on the bytes of the answer, at least (or it waits) and at most."""
        self._path = path
        self._topics = topics
        self.count = len(topics[0][1]) if len(topics) == 1 else sum(len(asked) for _, asked in topics)
        self.min_bytes, self._limit = bounds
        self.available_bytes: dict[Partition, int] = {}
        self._by_partition: dict[Partition, Asked] | None = None
        self._committed = committed
        self._version = version
        self._correlation_id = correlation_id
        self._connection: Any = None
        self._frame = bytearray()
        self._wait_at = 0

    def prepare(self) -> Steps[None]:
        yield from ()

    def steps(self, *, at_once: bool) -> Steps[Any]:
        """The answer; None where it is worth waiting. What is out of the ordinary is answered the general way."""
        answer = _Answer(self._limit, committed=self._committed)
        answer.plain += uvarint(len(self._topics) + 1)
        self.available_bytes = answer.available_bytes
        for topic_id, asked in self._topics:
            answer.plain += topic_id + uvarint(len(asked) + 1)
            if len(asked) <= LOOKS_A_STEP:
                if not answer.read(asked, self._path.node_id):
                    return self._unusual()
            else:
                for start in range(0, len(asked), LOOKS_A_STEP):
                    if not answer.read(asked[start : start + LOOKS_A_STEP], self._path.node_id):
                        return self._unusual()
                    yield
            answer.plain.append(0)
        if answer.records_bytes < self.min_bytes and not at_once:
            return None
        if not answer.usual:
            return self._unusual()
        return answer.frame(self._correlation_id)

    def bytes_at(self, partition: Partition) -> int | None:
        if self._by_partition is None:
            self._by_partition = {each[0]: each for _, asked in self._topics for each in asked}
        answer = _Answer(self._limit, committed=self._committed)
        if not answer.read([self._by_partition[partition]], self._path.node_id):
            return None
        return answer.records_bytes

    def partitions(self) -> Iterable[Partition | None]:
        return [each[0] for _, asked in self._topics for each in asked]

    def failure(self) -> Any:
        from tidelog.apis.fetch import frame

        response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        return frame(self._version, self._correlation_id, response)

    def forget(self) -> Steps[None]:
        yield from ()  # few enough to be let go of in one go

    def patient(self, connection: Any, frame: bytearray, wait_at: int, wait_ms: int, *, looked: bool) -> Parked:
        """It, waiting so long. `frame` is for the general way; its patience stands at `wait_at`."""
        self._connection = connection
        self._frame = frame
        self._wait_at = wait_at
        return Parked(self._path.loop, self, wait_ms / 1000, looked=looked)

    def _unusual(self) -> Any:
        frame, version = self._frame, self._version
        if not frame:
            return NotImplemented
        _write_max_wait(frame, self._wait_at, 0)  # answered at once, whatever there is
        view = memoryview(frame)
        return self._path.general(self._connection, view, 0, len(frame), FETCH, version, self._correlation_id)


class _Answer:
    """The answer of the fast path in the making: what was found so far, written with one Struct a partition."""

    __slots__ = (
        "_aborted",
        "_at_least_one",
        "_budget",
        "_committed",
        "_pieces",
        "available_bytes",
        "plain",
        "records_bytes",
        "usual",
    )

    def __init__(self, limit: int, *, committed: bool) -> None:
        self._budget = limit
        self._committed = committed
        self._aborted = 1 if committed else 0  # an empty list, or none
        self._at_least_one = True
        self._pieces: list[Any] = []
        self.plain = bytearray()
        self.records_bytes = 0
        self.available_bytes: dict[Partition, int] = {}
        self.usual = True

    def read(self, asked: list[Asked], node_id: int) -> bool:
        """Look at these partitions. False: what is there is for the general way to tell."""
        committed, plain, aborted = self._committed, self.plain, self._aborted
        for partition, index, epoch, offset, bytes_max in asked:
            if partition.deleted or partition.leader != node_id or NO_EPOCH != epoch != partition.leader_epoch:
                return False
            stored = partition.log
            high_watermark, start = partition.high_watermark, stored.ends.log_start
            piece = None
            try:
                stable = partition.last_stable_offset
                end = stable if committed else high_watermark
                if not (start <= end <= offset <= stored.ends.log_end and stored.offline is None):
                    limit = min(bytes_max, self._budget)
                    piece = stored.read(offset, limit, end, at_least_one=self._at_least_one)
                if piece is not None and committed and stored.segments.has_aborted and stored.aborted(offset, piece):
                    self.usual = False
            except KafkaError:
                return False
            if piece is None:
                # Of a batch that is larger than the limit, no aborted transactions are told.
                aborted_count = 0 if offset < end and bytes_max > 0 and self._budget > 0 else aborted
                plain += write_partition(index, 0, high_watermark, stable, start, aborted_count, -1) + _NO_RECORDS
                continue
            plain += write_partition(index, 0, high_watermark, stable, start, aborted, -1)
            size = len(piece)
            self.records_bytes += size
            self.available_bytes[partition] = size
            self._budget = max(0, self._budget - size)
            self._at_least_one = False
            plain += uvarint(size + 1)
            self._pieces += bytes(plain), piece
            plain.clear()
            plain.append(0)
        return True

    def frame(self, correlation_id: int) -> list[Any]:
        pieces, plain = self._pieces, self.plain
        plain.append(0)
        pieces.append(bytes(plain))
        size = self.records_bytes + sum(map(len, pieces[::2]))
        pieces[0] = _write_frame(_FRAME_BYTES + size, correlation_id, _START) + pieces[0]
        return pieces


@lru_cache(256)  # sizes of answers: mostly the same few
def uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80)) + uvarint(value >> 21)
