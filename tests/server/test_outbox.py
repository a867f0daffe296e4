"""What a connection still has to send: however slowly it is taken, each byte is read once, and so many in a turn."""

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.server.bounds import BYTES_A_TURN, GATHERED_BYTES
from tidelog.server.outbox import Outbox


class Piece:
    """A slice of a log whose reads are counted."""

    read = 0

    def __init__(self, size: int) -> None:
        self._data = memoryview(bytes(size))

    def __len__(self) -> int:
        return len(self._data)

    def view(self) -> memoryview:
        Piece.read += len(self)
        return self._data

    def send(self, sock: "Sock", sent: int) -> int:
        return sock.take(len(self) - sent)


class Sock:
    """Takes so many bytes at a time, and is full until `empty` is called; never, where there is no limit."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._room = limit
        self.sent = 0

    def empty(self) -> None:
        self._room = self._limit

    def take(self, count: int) -> int:
        if self._room is not None:
            if not self._room:
                raise BlockingIOError
            count = min(count, self._room)
            self._room -= count
        self.sent += count
        return count

    def send(self, data: bytes) -> int:
        return self.take(len(data))

    def sendmsg(self, parts: Sequence[bytes | memoryview], *_: Any) -> int:
        return self.take(sum(map(len, parts)))


class Loop:
    """Knows who waits to write."""

    writer: Callable[[], None] | None = None

    def add_writer(self, _: object, callback: Callable[[], None]) -> None:
        self.writer = callback

    def remove_writer(self, _: object) -> None:
        self.writer = None


def outbox(sock: Sock) -> tuple[Outbox, Loop]:
    loop: Any = Loop()
    given: Any = sock
    return Outbox(loop, given, lambda: None, lambda: None), loop


def answer_of(pieces: int, size: int) -> list[Any]:
    return [part for _ in range(pieces) for part in (b"head", Piece(size))]


def test_small_slices_that_are_taken_little_by_little_are_read_once() -> None:
    Piece.read = 0
    sock = Sock(100_000)
    box, loop = outbox(sock)
    box.send(answer_of(1000, 20_000))
    while loop.writer is not None:
        sock.empty()
        loop.writer()
    assert sock.sent == 1000 * 20_004
    assert Piece.read == 1000 * 20_000


def test_a_peer_that_takes_everything_is_sent_a_bounded_number_of_bytes_a_turn() -> None:
    for size in (20_000, 1_000_000):
        sock = Sock(None)
        box, loop = outbox(sock)
        pieces = 3 * BYTES_A_TURN // size
        box.send(answer_of(pieces, size))
        assert BYTES_A_TURN <= sock.sent <= BYTES_A_TURN + max(GATHERED_BYTES, size) + 20_004
        turns = 1
        while loop.writer is not None:
            loop.writer()
            turns += 1
        assert sock.sent == pieces * (size + 4)
        assert 3 <= turns <= 4
