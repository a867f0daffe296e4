"""One connection: frames in, answers out, over a raw non-blocking socket.

Reading goes into the shared buffer, or into the frame's own buffer for a large frame; what is left of a half frame is
kept here. The answers of one read event leave together. Reading stops while the peer doesn't take its answers, while a
request that may still change something is under way, and while too many produce requests wait for acknowledgements.

Time is the bound of a turn: Produce and Fetch cost by their bytes, but what other requests cost varies a thousandfold.
A connection that takes more than its share of the loop with them has them handled in turn with all else that takes long
(`env/slices.py`), which delays nobody but itself. A large frame that waits for its turn, or is read in steps, stays in
the buffer that it was received into.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from tidelog.server.answers import Answer, Late, Slot, joined
from tidelog.server.outbox import Outbox
from tidelog.server.share import LoopShare
from tidelog.wire.errors import MalformedError
from tidelog.wire.frame import check_size

if TYPE_CHECKING:
    from tidelog.env.network import Socket
    from tidelog.server.host import Host

log = logging.getLogger("tidelog.server")

LARGE_FRAME_BYTES = 64 * 1024
LARGE_ANSWER_BYTES = 16 * 1024
ANSWERS_A_TURN = 256  # then other connections have theirs: a read may bring thousands of small requests
# After a frame of a megabyte another is likely: receive it straight into a buffer as large or, where the pool has none,
# its head only and then the rest, which saves a quarter of the cost; those that nearly fit into the shared buffer are
# cheaper received there.
PEEK_AFTER_BYTES = 384 * 1024
PEEK_BYTES = 4096
KIND_BYTES = 6  # the size of a frame, and the key of its API
FETCH = 1  # the key; below it is Produce, above it what must be admitted

_read_size = Struct(">i").unpack_from


class Connection:
    __slots__ = (
        "_deferred",
        "_draining",
        "_frame",
        "_frame_bytes",
        "_frame_filled",
        "_host",
        "_left",
        "_lent",
        "_loop",
        "_outbox",
        "_peek",
        "_reading",
        "_receive",
        "_sending",
        "_shared",
        "_slots",
        "_stopped",
        "_waiting_frame",
        "_waits_for_buffers",
        "_watching",
        "active",
        "closed",
        "frame_began",
        "id",
        "listener",
        "peer",
        "seen_active",
        "share",
        "sock",
        "software",
    )

    def __init__(self, host: Host, sock: Socket, peer: str, listener: str, connection_id: int, now: float) -> None:
        self._host = host
        self._loop = host.loop
        self._shared = host.buffers.shared
        self._receive = sock.recv_into
        self.sock = sock
        self.peer = peer
        self.listener = listener
        self.id = connection_id
        self.software: tuple[str, str] | None = None
        self.closed = False
        self.active = True  # something came, or was answered, since the last look
        self.seen_active = now
        self.frame_began: float | None = None  # when the sweep first saw the frame that is still incomplete
        self._left = b""
        self._deferred = b""  # answers that leave at the end of this turn of the loop
        self._frame: memoryview | None = None
        self._frame_bytes = 0
        self._frame_filled = 0
        self._lent: memoryview | None = None  # the large frame that is being handled
        self._waiting_frame: tuple[memoryview, int] | None = None  # one that is complete and waits for its turn
        self._peek = True  # little is received at first: what it asks for may have to wait
        self._stopped = False  # frames wait in `_left` until what is under way has been answered
        self._waits_for_buffers = False
        self._sending = False  # answers are ready, and about to be sent
        self._draining = False
        self.share = LoopShare(host, now)
        self._slots: deque[Slot] = deque()
        self._outbox = Outbox(host.loop, sock, self._drained, self.close)
        self._reading = self._watching = True
        host.loop.add_reader(sock, self._readable)

    @property
    def half_frame(self) -> bool:
        """Whether a request has begun to arrive and isn't complete."""
        return self._frame is not None or (bool(self._left) and not self._stopped)

    @property
    def frame_filled(self) -> int:
        """How much has come of the request that has begun to arrive."""
        return len(self._left) if self._frame is None else self._frame_filled

    @property
    def busy(self) -> bool:
        return bool(self._slots) or bool(self._deferred) or bool(self._outbox.queue)

    @property
    def owes_answer(self) -> bool:
        """Whether the client waits for us, rather than we for the client to take its answers."""
        return bool(self._slots) and not self._outbox.queue

    def stirred(self) -> bool:
        """Whether something came or went since the last call."""
        active = self.active or self._outbox.moved
        self.active = self._outbox.moved = False
        return active

    def close(self, reason: str | None = None) -> None:
        """Close at once; answers that are late go nowhere."""
        if self.closed:
            return
        self.closed = True
        if self._watching:
            self._host.loop.remove_reader(self.sock)
        self._outbox.close()
        self.sock.close()
        if self._frame is not None:
            self._host.buffers.give_back(self._frame)
            self._frame = None
        self._drop_waiting_frame()
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.late is not None and not slot.ready:
                slot.late.abandon()
        self._host.closed(self, reason)

    def look_for_peer(self) -> None:
        """Notice a peer that has gone while nothing is read: a fetch may be parked for as long as the client wanted."""
        is_full = self._frame is not None or len(self._left) > LARGE_FRAME_BYTES
        if self._reading or self.closed or self._draining or is_full:
            return
        space = self._host.buffers.shared[:PEEK_BYTES]
        try:
            count = self.sock.recv_into(space)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count:
            self._left += bytes(space[:count])
        else:
            self.close()

    def stop_reading(self) -> None:
        """Accept no more requests; those accepted are still answered. Used when the broker stops."""
        self._draining = True
        self._left = b""
        self._drop_waiting_frame()
        self._pause()

    def keep_frame(self) -> Callable[[], None] | None:
        """The buffer of the request that is being handled is the caller's until it calls what this returns.

        None: it lies in one that is used again at once, as all small ones do.
        """
        frame = self._take_lent()
        return None if frame is None else self._host.buffers.keep(frame)

    def _drop_waiting_frame(self) -> None:
        if self._waiting_frame is not None:
            (frame, _), self._waiting_frame = self._waiting_frame, None
            self._host.buffers.give_back(frame)

    # -- in

    def _readable(self) -> None:
        if not self._reading:
            self._watching = False
            self._host.loop.remove_reader(self.sock)
            return
        if self._left or self._frame is not None or self._peek:
            self._read_on()
            return
        shared = self._shared
        try:
            count = self._receive(shared)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        self.active = True
        try:
            if count >= 4 and _read_size(shared)[0] + 4 == count <= self._host.frame_bytes_max:
                self._take_one(shared, count)
            else:
                self._take(shared, 0, count)
        except Exception as error:
            self._failed(error)

    def _read_on(self) -> None:
        """Receive what may be the rest of a frame, or one as large as the last."""
        frame, left, shared = self._frame, self._left, self._shared
        if frame is not None:
            space = frame[self._frame_filled : self._frame_bytes]
        elif left:
            shared[: len(left)] = left
            space = shared[len(left) :]
        elif self._peek and (ahead := self._host.buffers.lend_ready(self._frame_bytes)) is not None:
            self._read_ahead(ahead)
            return
        else:
            space = shared[:PEEK_BYTES]
        try:
            count = self._receive(space)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        self.active = True
        try:
            if frame is not None:
                self._fill_frame(frame, count)
            else:
                self._left = b""
                self._take(shared, 0, len(left) + count)
        except Exception as error:
            self._failed(error)

    def _read_ahead(self, buffer: memoryview) -> None:
        """Receive into a buffer for a frame as large as the last one: mostly it is."""
        buffers = self._host.buffers
        try:
            count = self.sock.recv_into(buffer[: self._frame_bytes])
        except BlockingIOError:
            buffers.give_back(buffer)
            return
        except OSError:
            count = 0
        if not count:
            buffers.give_back(buffer)
            self.close()
            return
        self.active = True
        try:
            size: int = _read_size(buffer)[0] + 4 if count >= 4 else 0
            if count <= size <= self._host.frame_bytes_max and size > LARGE_FRAME_BYTES:
                self._frame = buffer
                self._frame_bytes = size
                self._frame_filled = 0
                self._fill_frame(buffer, count)
                return
            try:
                self._take(buffer, 0, count)
            finally:
                buffers.give_back(buffer)
        except Exception as error:
            self._failed(error)

    def _fill_frame(self, frame: memoryview, count: int) -> None:
        filled = self._frame_filled = self._frame_filled + count
        size = self._frame_bytes
        if filled < size:
            if filled == len(frame):
                self._frame = self._host.buffers.grow(frame, filled, size)
            return
        self._frame = None
        self.frame_began = None
        self._take_large(frame, size)
        self._peek = size >= PEEK_AFTER_BYTES

    def _take_large(self, frame: memoryview, size: int) -> None:
        """Dispatch the frame in its own buffer, which is given back unless somebody keeps it."""
        self._lent = frame
        try:
            self._take_one(frame, size)
        finally:
            unkept = self._take_lent()
            if unkept is not None:
                self._host.buffers.give_back(unkept)

    def _take_lent(self) -> memoryview | None:
        lent, self._lent = self._lent, None
        return lent

    def _take_one(self, buffer: memoryview, end: int) -> None:
        """Dispatch the frame of which nothing is missing, and behind which nothing came."""
        if self._slots or self._deferred:
            self._take(buffer, 0, end)
            return
        if end > 5 and buffer[5] > FETCH and not self.share.may_handle():
            self._stop_at(buffer, 0, end, in_turn=True)
            return
        answer = self._host.dispatch(self, buffer, 4, end)
        if self.closed:
            return
        self._peek = False
        self.frame_began = None
        outbox = self._outbox
        if type(answer) is bytes:
            if len(answer) >= LARGE_ANSWER_BYTES:
                outbox.send_bytes(answer)
            else:
                self._defer(answer)
        elif type(answer) is list:
            outbox.send_pieces(answer)
        elif answer is not None:
            self._queue(answer)
            if self._must_wait():
                self._stop_at(buffer, end, end)
                return
        if outbox.queue and not self.closed:
            self._pause()

    def _take(self, buffer: memoryview, start: int, end: int) -> None:
        """Dispatch every whole frame in [start, end); keep the rest."""
        if self._deferred:
            self._send_deferred()
        dispatch, size_max = self._host.dispatch, self._host.frame_bytes_max
        slots = self._slots
        ready: list[bytes] = []
        first, queued = start, 0
        while end - start >= 4:
            size: int = _read_size(buffer, start)[0]
            stop = start + 4 + size
            if not 0 <= size <= size_max:
                check_size(size, size_max)
            if stop > end:
                break
            if size > 1 and buffer[start + 5] > FETCH and not self.share.may_handle():
                if ready:
                    self._outbox.send_bytes(b"".join(ready))
                self._stop_at(buffer, start, end, in_turn=True)
                return
            try:
                answer = dispatch(self, buffer, start + 4, stop)
            except MalformedError:
                if ready:  # what came before it is answered
                    self._outbox.send_bytes(b"".join(ready))
                raise
            start = stop
            if self.closed:
                return
            if type(answer) is bytes and not slots:
                ready.append(answer)
                if len(answer) < LARGE_ANSWER_BYTES and len(ready) < ANSWERS_A_TURN:
                    continue
                self._outbox.send_bytes(b"".join(ready) if len(ready) > 1 else ready[0])
                ready.clear()
                if start < end:
                    self._stop_at(buffer, start, end)
                    return
                continue
            if answer is None and not slots:
                continue
            if ready:
                self._outbox.send_bytes(b"".join(ready) if len(ready) > 1 else ready[0])
                ready.clear()
            if type(answer) is list and not slots:
                self._outbox.send_pieces(answer)
            else:
                self._queue(answer)
            queued += 1
            if self._outbox.queue or queued >= ANSWERS_A_TURN or (slots and self._must_wait()):
                self._stop_at(buffer, start, end)
                return
        if ready:
            self._defer(b"".join(ready) if len(ready) > 1 else ready[0])
        if start > first:
            self.frame_began = None
        if start < end:
            self._keep(buffer, start, end)
        else:
            self._peek = False
        if self._outbox.queue and not self.closed:
            self._pause()

    def _defer(self, answers: bytes) -> None:
        """Send when the other connections that have something to read were read too; now, where there is none.

        A client that sleeps has to be woken, which costs more than to answer it; one that is awake takes the answers
        of all its connections.
        """
        if self._loop.alone:
            self._outbox.send_bytes(answers)
            return
        self._deferred = answers
        self._loop.call_soon(self._send_deferred)

    def _send_deferred(self) -> None:
        answers, self._deferred = self._deferred, b""
        if answers and not self.closed:
            self._outbox.send_bytes(answers)
            if self._outbox.queue and not self.closed:
                self._pause()

    def _stop_at(self, buffer: memoryview, start: int, end: int, *, in_turn: bool = False) -> None:
        """Leave the frames from `start` on for later: others have their turn, or answers are owed or not taken yet."""
        if self.closed:
            return
        self.frame_began = None
        if buffer is self._lent and not start:
            self._waiting_frame, self._lent = (buffer, end), None
        elif start < end:
            self._left = bytes(buffer[start:end])
        self._stopped = True
        self._pause()
        if not self._outbox.queue and not self._must_wait():
            if in_turn:
                self._peek = True
                self._host.loop.call_in_turn(self._go_on_in_turn, is_light=self.share.is_light)
            else:
                self._host.loop.call_soon(self._go_on)

    def _go_on_in_turn(self) -> None:
        """Handle what takes long, for as long as a slice."""
        self.share.begin_slice()
        try:
            self._go_on()
        finally:
            self.share.end_slice()

    def _keep(self, buffer: memoryview, start: int, end: int) -> None:
        """Keep the head of a frame whose rest is still to come."""
        have = end - start
        if have >= KIND_BYTES:
            size: int = _read_size(buffer, start)[0] + 4
            if size > LARGE_FRAME_BYTES:
                buffers = self._host.buffers
                if buffers.exhausted() or (buffer[start + 5] > FETCH and buffers.many_kept()):
                    self._left = bytes(buffer[start:end])
                    self._stopped = True
                    self._pause()
                    if not self._waits_for_buffers:
                        self._waits_for_buffers = True
                        self._host.wait_for_buffers(self)
                    return
                frame = buffers.lend(size, have)
                frame[:have] = buffer[start:end]
                self._frame, self._frame_bytes, self._frame_filled = frame, size, have
                return
        self._left = bytes(buffer[start:end])

    def buffers_free(self) -> None:
        """The server has memory for another large frame: go on where `wait_for_buffers` was called."""
        self._waits_for_buffers = False
        self._go_on()

    # -- out

    def _queue(self, answer: Answer | Late) -> None:
        """Send an answer in its turn, which may be now."""
        if answer is None or isinstance(answer, (bytes, list)):
            if not self._slots:
                self._outbox.send(answer)
                return
            # Large answers must not pile up behind one that is late.
            small = answer is None or (isinstance(answer, bytes) and len(answer) < LARGE_ANSWER_BYTES)
            slot = Slot(self._slot_ready, self._slot_appended, self.close, None, runs_ahead=small)
            slot.answer, slot.ready = answer, True
            self._slots.append(slot)
            return
        slot = Slot(self._slot_ready, self._slot_appended, self.close, answer, runs_ahead=answer.runs_ahead)
        self._slots.append(slot)
        answer.begin(slot)

    def _must_wait(self) -> bool:
        slots = self._slots
        return bool(slots) and (not slots[-1].runs_ahead or len(slots) >= self._host.requests_max)

    def _slot_appended(self) -> None:
        """What waits behind it goes on; not in here, where a log or a coordinator is in the middle of its work."""
        if not self.closed and not self._must_wait():
            self._host.loop.call_soon(self._go_on)

    def _slot_ready(self) -> None:
        """Answers that become ready in the same turn of the loop, as after a sync, leave together."""
        slots = self._slots
        if self._sending or not slots or not slots[0].ready:
            return
        if len(slots) == 1 and self._stopped and not self._left and not slots[0].runs_ahead:
            self._send_ready()  # a fetch that waited, most likely: nothing can join it
            return
        self._sending = True
        self._host.loop.call_soon(self._send_ready)

    def _send_ready(self) -> None:
        self._sending = False
        if self._deferred:
            self._send_deferred()
        if self.closed:
            return
        slots = self._slots
        ready: list[Answer] = []
        while slots and slots[0].ready:
            ready.append(slots.popleft().answer)
        if not ready:
            return
        self.active = True
        try:
            for answer in joined(ready):
                self._outbox.send(answer)
        except Exception as error:
            self._failed(error)
        if not self.closed and (self._stopped or not self._reading):
            self._go_on()

    def _drained(self) -> None:
        self.active = True
        self._go_on()

    def _go_on(self) -> None:
        """Take up the frames that were kept, and reading, unless there is again a reason to wait."""
        if self.closed or self._draining or self._outbox.queue or self._must_wait():
            return
        large, self._waiting_frame = self._waiting_frame, None
        self._stopped = False
        try:
            if large is not None:
                self._take_large(*large)
            if self._left and self._outbox.queue:  # it waits until that answer is taken
                self._stopped = True
            elif self._left and not self._stopped and not self.closed:
                left, self._left = self._left, b""
                self._take(memoryview(bytearray(left)), 0, len(left))
        except Exception as error:
            self._failed(error)
        if not self.closed and not self._stopped and not self._outbox.queue:
            self._resume()

    def _failed(self, error: Exception) -> None:
        """A request that can't be understood, or a bug of ours: a client that isn't answered must not wait for ever."""
        if isinstance(error, MalformedError):
            self.close(str(error))
            return
        self.close("an internal error, which the log tells next")
        log.error("a request of %s on %s failed", self.peer, self.listener, exc_info=error)

    def _pause(self) -> None:
        """The loop is told only if something comes meanwhile: a client whose fetch waits has usually nothing to say."""
        self._reading = False

    def _resume(self) -> None:
        self._reading = True
        if not self._watching:
            self._watching = True
            self._host.loop.add_reader(self.sock, self._readable)
