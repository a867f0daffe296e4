"""One connection: frames in, answers out, over a raw non-blocking socket.

`receiver.py` has what comes in, `answer_queue.py` and `outbox.py` what goes out; here is what lies between: frames are
handled one after the other, until there is a reason to wait. The answers of one read event leave together. Nothing is
taken while the peer doesn't take its answers, while a request that may still change something is under way, and while
too many produce requests wait for acknowledgements. Its states are `Flow`: states.py says why it never stands still.

Time is the bound of a turn: Produce and Fetch cost by their bytes, but what other requests cost varies a thousandfold.
A connection that takes more than its share of the loop with them has them handled in turn with all else that takes long
(`env/slices.py`), which delays nobody but itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from tidelog.server.answer_queue import AnswerQueue
from tidelog.server.bounds import ALIKE_MAX, ANSWERS_A_TURN, LARGE_ANSWER_BYTES, PRODUCE_BYTES_MIN
from tidelog.server.outbox import Outbox
from tidelog.server.receiver import FETCH, Receiver
from tidelog.server.states import (
    AWAITS_ANSWER,
    AWAITS_BUFFERS,
    AWAITS_PEER,
    CLOSED,
    DRAINING,
    FLOW,
    HELD,
    IN_TURN,
    READING,
    YIELDED,
)
from tidelog.server.time_quota import TimeQuota
from tidelog.wire.errors import MalformedError
from tidelog.wire.frame import check_size

if TYPE_CHECKING:
    from tidelog.env.network import Socket
    from tidelog.server.host import Host
    from tidelog.server.states import Flow

log = logging.getLogger("tidelog.server")


_read_size = Struct(">i").unpack_from


class Connection:
    __slots__ = (
        "_answers",
        "_host",
        "_outbox",
        "_receiver",
        "flow",
        "id",
        "listener",
        "peer",
        "seen_active",
        "sock",
        "time_quota",
    )

    def __init__(self, host: Host, sock: Socket, peer: str, listener: str, connection_id: int, now: float) -> None:
        self._host = host
        self.sock = sock
        self.peer = peer
        self.listener = listener
        self.id = connection_id
        self.seen_active = now
        self.time_quota = TimeQuota(host, now)
        self.flow: Flow = READING
        self._outbox = Outbox(host.loop, sock, self._drained, self._unsent)
        self._answers = AnswerQueue(self, host.loop, self._outbox, host.requests_max)
        self._receiver = Receiver(self, host, sock)
        self._receiver.watch()

    def _become(self, flow: Flow) -> None:
        assert flow in FLOW[self.flow], f"{self.flow} can't become {flow}"
        self.flow = flow

    # -- what the server asks

    @property
    def half_frame(self) -> bool:
        """Whether a request has begun to arrive and isn't complete."""
        return self._receiver.half_frame

    @property
    def frame_filled(self) -> int:
        """How much has come of the request that has begun to arrive."""
        return self._receiver.filled

    def frame_began(self, now: float) -> float | None:
        """When it was first asked about the request that still arrives; None: there is none."""
        return self._receiver.began(now)

    @property
    def busy(self) -> bool:
        return self._answers.busy or bool(self._outbox.queue)

    @property
    def owes_answer(self) -> bool:
        """Whether the client waits for us, rather than we for the client to take its answers."""
        return bool(self._answers.slots) and not self._outbox.queue

    def stirred(self) -> bool:
        """Whether something came or went since the last call."""
        active = self._receiver.active or self._answers.active or self._outbox.moved
        self._receiver.active = self._answers.active = self._outbox.moved = False
        return active

    def look_for_peer(self) -> None:
        """Notice a peer that has gone while nothing is read."""
        if self.flow not in (READING, DRAINING, CLOSED):
            self._receiver.look_for_peer()

    def stop_reading(self) -> None:
        """Accept no more requests; those accepted are still answered. Used when the broker stops."""
        if self.flow not in (DRAINING, CLOSED):
            self._become(DRAINING)
            self._receiver.drop()

    def close(self, reason: str | None = None) -> None:
        """Close at once; answers that are late go nowhere."""
        if self.flow is CLOSED:
            return
        self._become(CLOSED)
        self._receiver.close()
        self._outbox.close()
        self.sock.close()
        self._answers.close()
        self._host.closed(self, reason)

    def peer_gone(self) -> None:
        """The other side has ended it, in order or because its process is no more: that can't be told apart."""
        if self.flow is not CLOSED:
            self._host.broken(self)
            self.close()

    def _unsent(self, reason: str | None) -> None:
        """An answer can't be sent: for a reason of ours, or since the peer has gone."""
        if reason is None:
            self.peer_gone()
        else:
            self.close(reason)

    def failed(self, error: Exception) -> None:
        """A request that can't be understood, or a bug of ours: a client that isn't answered must not wait for ever."""
        if isinstance(error, MalformedError):
            self.close(str(error))
            return
        self.close("an internal error, which the log tells next")
        log.error("a request of %s on %s failed", self.peer, self.listener, exc_info=error)

    # -- handling frames

    def keep_frame(self) -> Callable[[], None] | None:
        """The buffer of the request that is being handled is the caller's until it calls what this returns.

        None: it lies in one that is used again at once, as all small ones do.
        """
        frame = self._receiver.take_lent()
        return None if frame is None else self._host.buffers.keep(frame)

    def take_one(self, buffer: memoryview, end: int) -> int:
        """Handle the frame of which nothing is missing, and behind which nothing came. 0: it has to wait."""
        answers, outbox = self._answers, self._outbox
        if answers.slots or answers.deferred:
            return self.take(buffer, 0, end)
        if end > 5 and buffer[5] > FETCH and not self.time_quota.may_handle():
            self._wait(in_turn=True)
            return 0
        answer = self._host.dispatch(self, buffer, 4, end)
        if self.flow is CLOSED:
            return end
        if type(answer) is bytes:
            if len(answer) >= LARGE_ANSWER_BYTES:
                outbox.send_bytes(answer)
            else:
                answers.defer(answer)
        elif type(answer) is list:
            outbox.send_pieces(answer)
        elif answer is not None:
            answers.add(answer)
            if answers.must_wait():
                self._wait()
                return end
        if outbox.queue and self.flow is READING:
            self._become(AWAITS_PEER)
        return end

    def take(self, buffer: memoryview, start: int, end: int) -> int:
        """Handle whole frames in [start, end), unless there is a reason to wait; where the first begins that wasn't."""
        answers, outbox = self._answers, self._outbox
        if answers.deferred:
            answers.send_deferred()
            if outbox.queue or self.flow is not READING:
                self._wait()
                return start
        host, slots = self._host, answers.slots
        dispatch, size_max = host.dispatch, host.frame_bytes_max
        ready: list[bytes] = []
        queued, alike = 0, end - start <= size_max  # else one of those behind may be too large
        while end - start >= 4:
            size: int = _read_size(buffer, start)[0]
            stop = start + 4 + size
            if not 0 <= size <= size_max:
                self._send(ready)  # what came before it is answered
                check_size(size, size_max)
            if stop > end:
                break
            if size > 1 and buffer[start + 5] > FETCH and not self.time_quota.may_handle():
                self._send(ready)
                self._wait(in_turn=True)
                return start
            several = None
            if alike and end - stop > PRODUCE_BYTES_MIN and buffer[start + 5] < FETCH:
                several = host.dispatch_alike(buffer, start, end, min(ALIKE_MAX, host.requests_max - len(slots)))
                alike = several is not None
            if several is not None:
                got, start = several
            else:
                try:
                    got = (dispatch(self, buffer, start + 4, stop),)
                except MalformedError:
                    self._send(ready)  # what came before it is answered
                    raise
                start = stop
            if self.flow is not READING:
                if self.flow is CLOSED:
                    return start
                end = start  # the broker stops, and this one was the last
            late = queued
            for answer in got:
                if type(answer) is bytes and not slots:
                    ready.append(answer)
                elif answer is not None or slots:
                    self._send(ready)
                    if self.flow is not CLOSED:  # else the peer has gone: what would be late isn't begun
                        answers.add(answer)
                    queued += 1
            if queued > late and (
                self.flow is CLOSED or outbox.queue or queued >= ANSWERS_A_TURN or (slots and answers.must_wait())
            ):
                self._wait()
                if self.flow is AWAITS_ANSWER and end - start > PRODUCE_BYTES_MIN:
                    host.begin_ahead(buffer, start, end)
                return start
            if ready and (len(ready[-1]) >= LARGE_ANSWER_BYTES or len(ready) >= ANSWERS_A_TURN):
                self._send(ready)
                if start < end:
                    self._wait()
                    return start
        if ready:
            answers.defer(b"".join(ready) if len(ready) > 1 else ready[0])
        if outbox.queue and self.flow is READING:
            self._become(AWAITS_PEER)
        return start

    def _send(self, ready: list[bytes]) -> None:
        if ready:
            self._outbox.send_bytes(b"".join(ready) if len(ready) > 1 else ready[0])
            ready.clear()

    # -- waiting, and going on

    def _wait(self, *, in_turn: bool = False) -> None:
        """Requests are left for later: answers aren't taken yet or are owed, or others have their turn."""
        if self.flow is not READING:  # it was closed meanwhile, or accepts no more
            return
        if self._outbox.queue:
            self._become(AWAITS_PEER)
        elif self._answers.must_wait():
            self._become(AWAITS_ANSWER)
        elif in_turn:
            self._become(IN_TURN)
            self._host.loop.call_in_turn(self._turn_came, self.time_quota.weight)
        else:
            self._yield()

    def _yield(self) -> None:
        self._become(YIELDED)
        self._host.loop.call_soon(self._others_had_theirs)

    def _others_had_theirs(self) -> None:
        if self.flow is YIELDED:
            self._go_on()

    def _turn_came(self) -> None:
        """Handle what takes long, for as long as a slice."""
        if self.flow is not IN_TURN:
            return
        self.time_quota.begin_slice()
        try:
            self._go_on()
        finally:
            self.time_quota.end_slice()

    def wait_for_buffers(self) -> None:
        """There is no memory for a large frame that has begun."""
        self._become(AWAITS_BUFFERS)
        self._host.wait_for_buffers(self)

    def buffers_free(self) -> None:
        """The server has memory for another large frame: go on where `wait_for_buffers` was called."""
        if self.flow is AWAITS_BUFFERS:
            self._go_on()

    def _drained(self) -> None:
        """The peer has taken all answers."""
        if self.flow is AWAITS_PEER:
            self._go_on()

    @property
    def awaits_only_answer(self) -> bool:
        return self.flow is AWAITS_ANSWER and self._receiver.incoming is not HELD

    def appended(self) -> None:
        """What waits behind it goes on; not in here, where a log or a coordinator is in the middle of its work."""
        if self.flow is AWAITS_ANSWER and not self._answers.must_wait():
            self._yield()

    def answered(self) -> None:
        if self.flow is AWAITS_ANSWER:
            self._go_on()
        elif self.flow is READING and self._outbox.queue:
            self._become(AWAITS_PEER)

    def _go_on(self) -> None:
        """Take up the frames that were held, and reading, unless there is another reason to wait."""
        flow = self.flow
        try:
            if self._outbox.queue:
                if flow is not AWAITS_PEER:
                    self._become(AWAITS_PEER)
                return
            if self._answers.must_wait():
                if flow is not AWAITS_ANSWER:
                    self._become(AWAITS_ANSWER)
                return
            self._become(READING)
            self._receiver.take_up(peek=flow is IN_TURN)
        except Exception as error:
            self.failed(error)
        if self.flow is READING:
            self._receiver.watch()

    def check_invariants(self) -> None:
        """What holds between events. Why it suffices: states.py."""
        flow, awaited, unsent = self.flow, self._answers.must_wait(), bool(self._outbox.queue)
        self._receiver.check_invariants()
        self._answers.check_invariants()
        if flow is READING:
            assert not unsent, "nothing is read while answers aren't taken"
            assert not awaited, "nothing is read while a request may change something"
        elif flow is AWAITS_PEER:
            assert unsent, "the peer was waited for in vain"
        elif flow is AWAITS_ANSWER:
            assert awaited, "an answer was waited for in vain"
        elif flow in (YIELDED, IN_TURN, AWAITS_BUFFERS):
            assert not awaited
            assert flow is YIELDED or self._receiver.incoming is HELD
        elif flow is CLOSED:
            assert not unsent
            assert not awaited
