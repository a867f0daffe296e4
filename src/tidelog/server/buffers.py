"""Memory for requests on their way in.

Small requests are received into one buffer that all connections share, since the loop reads from one at a time. A frame
that doesn't fit gets a buffer of its own from a pool: a fresh megabyte page-faults, which costs as much as the copy.
Where the pool has none, the buffer grows with the bytes that come: what a client merely claims takes no memory. From
some megabytes on it is mapped, and has the frame's size at once: then it is the kernel that gives it memory as bytes
come, and nothing is copied, nor cleared, which would take long. All of them together stay within
`queued.max.request.bytes`.

A frame that is read in steps keeps its buffer meanwhile. While such ones are many, no more of their kind are received.
"""

from collections.abc import Callable
from mmap import mmap

from tidelog.server.bounds import (
    FIRST_BYTES,
    KEPT_BYTES_MAX,
    MAPPED_BYTES_MIN,
    POOLED_BUFFER_BYTES_MAX,
    POOLED_BYTES_MAX,
    SHARED_BYTES,
)

GROWTH = 4


class Buffers:
    """The shared buffer and the pool. Sizes are powers of two."""

    __slots__ = ("_pool", "_pooled_bytes", "bytes_max", "kept_bytes", "lent_bytes", "shared")

    def __init__(self, bytes_max: int) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.bytes_max = bytes_max
        self.lent_bytes = 0
        self.kept_bytes = 0
        self._pool: dict[int, list[memoryview]] = {}
        self._pooled_bytes = 0

    def exhausted(self) -> bool:
        """Whether connections have to wait before they begin another large frame."""
        return 0 < self.bytes_max <= self.lent_bytes

    def many_kept(self) -> bool:
        """Whether large frames that may take long have to wait before they are received."""
        return self.kept_bytes >= KEPT_BYTES_MAX

    def keep(self, buffer: memoryview) -> Callable[[], None]:
        """The lent buffer is kept for longer than a turn; what gives it back."""
        self.kept_bytes += len(buffer)

        def give_back() -> None:
            self.kept_bytes -= len(buffer)
            self.give_back(buffer)

        return give_back

    def lend(self, frame_bytes: int, have: int) -> memoryview:
        """A buffer to begin a frame with of which `have` bytes came: for all of it from the pool, else a small one."""
        whole = _power_of_two(frame_bytes)
        if self._pool.get(whole):
            return self._lend(whole)
        return self._lend(_next_size(max(FIRST_BYTES, GROWTH * have), whole))

    def lend_ready(self, frame_bytes: int) -> memoryview | None:
        """A buffer for all of such a frame, where the pool has one and memory isn't short."""
        whole = 1 << (frame_bytes - 1).bit_length()
        free = self._pool.get(whole)
        if not free or 0 < self.bytes_max <= self.lent_bytes:
            return None
        self.lent_bytes += whole
        self._pooled_bytes -= whole
        return free.pop()

    def grow(self, buffer: memoryview, filled: int, frame_bytes: int) -> memoryview:
        """A larger buffer with the same first `filled` bytes; the old one is taken back."""
        larger = self._lend(_next_size(GROWTH * len(buffer), _power_of_two(frame_bytes)))
        larger[:filled] = buffer[:filled]
        self.give_back(buffer)
        return larger

    def give_back(self, buffer: memoryview) -> None:
        size = len(buffer)
        self.lent_bytes -= size
        if size <= POOLED_BUFFER_BYTES_MAX and self._pooled_bytes + size <= POOLED_BYTES_MAX:
            free = self._pool.get(size)
            if free is None:
                free = self._pool[size] = []
            free.append(buffer)
            self._pooled_bytes += size

    def _lend(self, size: int) -> memoryview:
        self.lent_bytes += size
        free = self._pool.get(size)
        if free:
            self._pooled_bytes -= size
            return free.pop()
        return memoryview(mmap(-1, size) if size >= MAPPED_BYTES_MIN else bytearray(size))


def _next_size(wanted: int, whole: int) -> int:
    """Of a buffer that is to have room for so much of a frame."""
    return whole if wanted >= MAPPED_BYTES_MIN else min(whole, _power_of_two(wanted))


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()
