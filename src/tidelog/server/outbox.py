"""What a connection still has to send. Small answers leave in one sendmsg, large slices by sendfile."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tidelog.env.mapping import file_of
from tidelog.log.slice import SENDFILE_BYTES_MIN
from tidelog.server.answers import Answer, Sendable
from tidelog.server.bounds import BYTES_A_TURN, GATHERED_BYTES, IOV_MAX

if TYPE_CHECKING:
    from tidelog.env import Loop
    from tidelog.env.network import Socket

MSG_MORE = 0x8000  # Linux: more follows at once, so don't send a packet for this alone


NETWORK_ERRORS = frozenset((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.ENOBUFS, errno.ENOMEM))
"""Beside those that are a ConnectionError or TimeoutError; what else a send fails with is the disk's."""


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

    def __init__(
        self, loop: Loop, sock: Socket, drained: Callable[[], None], failed: Callable[[str | None], None]
    ) -> None:
        """`failed` is told why, unless the peer just went."""
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
                try:
                    piece = piece.view()
                except OSError as error:
                    self._unsent(error, (piece,))
                    return
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
        except OSError as error:
            self._unsent(error, (middle,))
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
            self._failed(None)
            return
        if count != len(data):
            self.queue.append(memoryview(data)[count:])
            self._want_to_write()

    def _flush(self) -> None:
        queue, left = self.queue, BYTES_A_TURN
        self.moved = True
        try:
            while queue:
                if left <= 0:
                    self._want_to_write()
                    return
                head = queue[0]
                if isinstance(head, (bytes, memoryview)) or (len(head) < SENDFILE_BYTES_MIN and not self._sent):
                    if type(head) is bytes and (len(queue) == 1 or len(queue[1]) >= SENDFILE_BYTES_MIN):
                        left -= self._send_head(head)
                    else:
                        left -= self._send_small()
                else:
                    count = head.send(self._sock, self._sent)
                    if not count:
                        raise OSError(errno.EIO, "the file ends before the slice does")
                    left -= count
                    self._sent += count
                    if self._sent < len(head):  # the socket is full: asking again at once would only be told so
                        self._want_to_write()
                        return
                    queue.popleft()
                    self._sent = 0
        except BlockingIOError:
            self._want_to_write()
            return
        except OSError as error:
            self._unsent(error, self._sent_together())
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock)
            self._drained()

    def _unsent(self, error: OSError, parts: Iterable[bytes | memoryview | Sendable]) -> None:
        """What was begun can't be gone on with. Of the next answer from this file, what can't be read is told."""
        if isinstance(error, (ConnectionError, TimeoutError)) or error.errno in NETWORK_ERRORS:
            self._failed(None)
            return
        for part in parts:
            if isinstance(part, memoryview):
                file = file_of(part)
                if file is not None:
                    file.suspect = True
            elif not isinstance(part, bytes):
                part.distrust()
        self._failed(f"what was fetched can't be read: {error}")

    def _sent_together(self) -> Iterator[bytes | memoryview | Sendable]:
        """What one call tries to send of the queue: a large slice, or the parts before the next one."""
        gathered = 0
        for part in self.queue:
            if gathered and (gathered >= GATHERED_BYTES or len(part) >= SENDFILE_BYTES_MIN):
                break
            gathered += len(part)
            yield part

    def _send_head(self, head: bytes) -> int:
        """Send what stands alone, or before a large slice; how many bytes went."""
        queue = self.queue
        sent = self._sock.sendmsg((head,), (), MSG_MORE if len(queue) > 1 else 0)
        if sent == len(head):
            queue.popleft()
        else:
            queue[0] = memoryview(head)[sent:]
        return sent

    def _send_small(self) -> int:
        """Send what stands at the head of the queue up to the next large slice; how many bytes went.

        Raises BlockingIOError where the socket didn't take all of it.
        """
        queue = self.queue
        parts: list[bytes | memoryview] = []
        flags = gathered = 0
        for part in queue:
            gathered += len(part)
            if isinstance(part, (bytes, memoryview)):
                parts.append(part)
            elif len(part) < SENDFILE_BYTES_MIN:
                parts.append(part.view())
            else:
                flags = MSG_MORE
                break
            if len(parts) == IOV_MAX or gathered >= GATHERED_BYTES:
                break
        sent = left = self._sock.sendmsg(parts, (), flags)
        for number, part in enumerate(parts):
            queue.popleft()
            size = len(part)
            if left < size:
                # What is left of slices stays as the views that were made of them: their bytes don't change.
                for _ in range(number + 1, len(parts)):
                    queue.popleft()
                queue.extendleft(reversed(parts[number + 1 :]))
                queue.appendleft(memoryview(part)[left:])
                raise BlockingIOError  # asking again at once would only be told so
            left -= size
        return sent

    def _want_to_write(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._sock, self._flush)
