"""What a connection still has to send. Small answers leave in one sendmsg, large slices by sendfile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.log.slice import SENDFILE_BYTES_MIN
from tidelog.server.answers import Answer, Sendable

if TYPE_CHECKING:
    from tidelog.env import Loop
    from tidelog.env.network import Socket

IOV_MAX = 512
MSG_MORE = 0x8000  # Linux: more follows at once, so don't send a packet for this alone


class Outbox:
    """`queue` is what waits to be sent: empty, where the peer has taken everything."""

    __slots__ = (
        "_closed",
        "_drained",
        "_failed",
        "_loop",
        "_send",
        "_sendmsg",
        "_sent",
        "_sock",
        "_writing",
        "moved",
        "queue",
    )

    def __init__(self, loop: Loop, sock: Socket, drained: Callable[[], None], failed: Callable[[], None]) -> None:
        self._loop = loop
        self._sock = sock
        self._send = sock.send
        self._sendmsg = sock.sendmsg
        self._drained = drained
        self._failed = failed
        self.queue: deque[bytes | memoryview | Sendable] = deque()
        self._sent = 0  # bytes of the queue's first part that have gone, where that is a slice
        self._writing = False
        self._closed = False
        self.moved = False  # the peer took something of what was queued; whoever looks resets it

    def close(self) -> None:
        self._closed = True
        self.queue.clear()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock)

    def send(self, answer: Answer) -> None:
        if isinstance(answer, bytes):
            self.send_bytes(answer)
        elif answer is not None:
            self.send_pieces(answer)

    def send_pieces(self, answer: list[bytes | memoryview | Sendable]) -> None:
        if self._closed:
            return
        queue = self.queue
        if queue:
            queue.extend(answer)
            return
        if len(answer) == 3:
            head, piece, tail = answer
            if type(piece) is not memoryview and len(piece) < SENDFILE_BYTES_MIN and not isinstance(piece, bytes):
                piece = piece.view()
            if type(piece) is memoryview and type(head) is bytes and type(tail) is bytes:
                self._send_three(head, piece, tail)
                return
        queue.extend(answer)
        self._flush()

    def _send_three(self, head: bytes, middle: memoryview, tail: bytes) -> None:
        """The usual small fetch, a slice between two pieces of bytes, in one call and without the queue."""
        try:
            sent = self._sendmsg((head, middle, tail))
        except BlockingIOError:
            sent = 0
        except OSError:
            self._failed()
            return
        if sent != len(head) + len(middle) + len(tail):
            for part in (head, middle, tail):
                size = len(part)
                if sent < size:
                    self.queue.append(memoryview(part)[sent:])
                sent = max(0, sent - size)
            self._want_to_write()

    def send_bytes(self, data: bytes) -> None:
        if self._closed:
            return
        if self.queue:
            self.queue.append(data)
            return
        try:
            count = self._send(data)
        except BlockingIOError:
            count = 0
        except OSError:
            self._failed()
            return
        if count != len(data):
            self.queue.append(memoryview(data)[count:])
            self._want_to_write()

    def _flush(self) -> None:
        queue = self.queue
        self.moved = True
        try:
            while queue:
                head = queue[0]
                if isinstance(head, (bytes, memoryview)) or (len(head) < SENDFILE_BYTES_MIN and not self._sent):
                    if type(head) is bytes and (len(queue) == 1 or len(queue[1]) >= SENDFILE_BYTES_MIN):
                        self._send_head(head)
                    else:
                        self._send_small()
                else:
                    count = head.send(self._sock, self._sent)
                    if not count:
                        raise OSError("the file ended before the slice did")
                    self._sent += count
                    if self._sent < len(head):  # the socket is full: asking again at once would only be told so
                        self._want_to_write()
                        return
                    queue.popleft()
                    self._sent = 0
        except BlockingIOError:
            self._want_to_write()
            return
        except (OSError, ValueError):  # ValueError: a slice that can't be mapped any more
            self._failed()
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock)
            self._drained()

    def _send_head(self, head: bytes) -> None:
        """Send what stands alone, or before a large slice."""
        queue = self.queue
        sent = self._sock.sendmsg((head,), (), MSG_MORE if len(queue) > 1 else 0)
        if sent == len(head):
            queue.popleft()
        else:
            queue[0] = memoryview(head)[sent:]

    def _send_small(self) -> None:
        """Send what stands at the head of the queue up to the next large slice."""
        queue = self.queue
        parts: list[bytes | memoryview] = []
        flags = 0
        for part in queue:
            if isinstance(part, (bytes, memoryview)):
                parts.append(part)
            elif len(part) < SENDFILE_BYTES_MIN:
                parts.append(part.view())
            else:
                flags = MSG_MORE
                break
            if len(parts) == IOV_MAX:
                break
        sent = self._sock.sendmsg(parts, (), flags)
        for part in parts:
            size = len(part)
            if sent < size:
                # What is left of a slice stays as the view that was made of it: its bytes don't change.
                queue[0] = memoryview(part)[sent:]
                return
            sent -= size
            queue.popleft()

    def _want_to_write(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._sock, self._flush)
