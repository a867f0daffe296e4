"""Frames: four bytes of size, then so many bytes. Everything on a connection is made of them.

`frame_end` is for whoever owns a receive buffer and looks into it where it lies; `FrameReader` gathers frames from
whatever arrives, and holds no more than one unfinished frame.
"""

from struct import Struct

from tidelog.wire.errors import MalformedError

SIZE_BYTES = 4

_SIZE = Struct(">i")


def check_size(size: int, size_max: int) -> None:
    """Refuse a size that no frame can have, before a byte is set aside for it."""
    if size < 0:
        raise MalformedError(f"a frame claims a size of {size} bytes")
    if size > size_max:
        raise MalformedError(f"a frame claims {size} bytes, {size_max} is the most (socket.request.max.bytes)")


def frame_end(buffer: bytes | bytearray | memoryview, pos: int, filled: int, size_max: int) -> int | None:
    """Where the frame whose size stands at `pos` will end; None where the size itself is not there yet.

    `filled` is where the received bytes end: the frame is complete when its end is not beyond it. Its contents begin
    at `pos + SIZE_BYTES`.
    """
    if filled - pos < SIZE_BYTES:
        return None
    (size,) = _SIZE.unpack_from(buffer, pos)
    check_size(size, size_max)
    return pos + SIZE_BYTES + size


def framed(*parts: bytes) -> bytes:
    """The parts as one frame."""
    return b"".join((_SIZE.pack(sum(map(len, parts))), *parts))


class FrameReader:
    """Gathers frames from pieces of any size.

    >>> reader = FrameReader(size_max=100)
    >>> reader.feed(framed(b"one") + framed(b"two")[:5])
    [b'one']
    >>> reader.feed(b"wo")
    [b'two']
    """

    __slots__ = ("_held", "_size_max")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._held = bytearray()

    @property
    def held_bytes(self) -> int:
        """Bytes of the frame that is not whole yet, its size included."""
        return len(self._held)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The contents of each frame that `data` completes.

        After a MalformedError where the next frame begins is unknown: the connection is of no more use.
        """
        held = self._held
        held += data
        frames: list[bytes] = []
        pos = 0
        while (end := frame_end(held, pos, len(held), self._size_max)) is not None and end <= len(held):
            frames.append(bytes(held[pos + SIZE_BYTES : end]))
            pos = end
        del held[:pos]
        return frames
