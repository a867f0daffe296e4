"""The answers of one connection on their way out: those that are late, those that leave with the turn of the loop.

Answers leave in the order of their requests. Those that become ready in the same turn of the loop leave together.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from tidelog.server.answers import Answer, Late, Slot, joined
from tidelog.server.bounds import LARGE_ANSWER_BYTES

if TYPE_CHECKING:
    from tidelog.env import Loop
    from tidelog.server.outbox import Outbox


class Asker(Protocol):
    """Whose requests are answered: the connection."""

    @property
    def awaits_only_answer(self) -> bool:
        """Whether it waits for an answer, and no request can be taken before that."""
        ...

    def appended(self) -> None:
        """A request has no more effects: those behind it may go on."""
        ...

    def answered(self) -> None:
        """Answers were sent."""
        ...

    def failed(self, error: Exception) -> None: ...

    def close(self, reason: str | None = None) -> None: ...


class AnswerQueue:
    """`slots`: the answers that are late, and those behind them; `deferred`: what leaves at the end of this turn."""

    __slots__ = (
        "_appended",
        "_asker",
        "_close",
        "_closed",
        "_loop",
        "_outbox",
        "_ready",
        "_requests_max",
        "_sending",
        "active",
        "deferred",
        "slots",
    )

    def __init__(self, asker: Asker, loop: Loop, outbox: Outbox, requests_max: int) -> None:
        self._asker = asker
        self._ready, self._appended, self._close = self._slot_ready, asker.appended, asker.close
        self._loop = loop
        self._outbox = outbox
        self._requests_max = requests_max
        self.slots: deque[Slot] = deque()
        self.deferred = b""
        self.active = False  # something was answered since the last look
        self._sending = False  # answers are ready, and the loop calls back to send them
        self._closed = False

    @property
    def busy(self) -> bool:
        return bool(self.slots) or bool(self.deferred)

    def must_wait(self) -> bool:
        """Whether the next request has to wait for an answer."""
        slots = self.slots
        return bool(slots) and (not slots[-1].runs_ahead or len(slots) >= self._requests_max)

    def add(self, answer: Answer | Late) -> None:
        """Send an answer in its turn, which may be now."""
        if answer is None or isinstance(answer, (bytes, list)):
            if not self.slots:
                self._outbox.send(answer)
                return
            # Large answers must not pile up behind one that is late.
            small = answer is None or (isinstance(answer, bytes) and len(answer) < LARGE_ANSWER_BYTES)
            slot = Slot(self._ready, self._appended, self._close, None, runs_ahead=small)
            slot.answer, slot.ready = answer, True
            self.slots.append(slot)
            return
        slot = Slot(self._ready, self._appended, self._close, answer, runs_ahead=answer.runs_ahead)
        self.slots.append(slot)
        answer.begin(slot)

    def defer(self, answers: bytes) -> None:
        """Send when the other connections that have something to read were read too; now, where there is none.

        A client that sleeps has to be woken, which costs more than to answer it; one that is awake takes the answers
        of all its connections.
        """
        if self._loop.alone:
            self._outbox.send_bytes(answers)
            return
        self.deferred = answers
        self._loop.call_soon(self._turn_ends)

    def send_deferred(self) -> None:
        """Send them now: others come behind them."""
        answers, self.deferred = self.deferred, b""
        self._outbox.send_bytes(answers)

    def _turn_ends(self) -> None:
        if self.deferred:
            self.send_deferred()
            self._asker.answered()

    def _slot_ready(self) -> None:
        slots = self.slots
        if self._sending or not slots or not slots[0].ready:
            return
        if len(slots) == 1 and not slots[0].runs_ahead and self._asker.awaits_only_answer:
            self._send_ready()  # a fetch that waited, most likely: nothing can join it
            return
        self._sending = True
        self._loop.call_soon(self._send_ready)

    def _send_ready(self) -> None:
        self._sending = False
        if self._closed:
            return
        slots = self.slots
        ready: list[Answer] = []
        while slots and slots[0].ready:
            ready.append(slots.popleft().answer)
        self.active = True
        try:
            for answer in joined(ready):
                self._outbox.send(answer)
        except Exception as error:
            self._asker.failed(error)
        self._asker.answered()

    def close(self) -> None:
        """Answers that are late go nowhere."""
        self._closed = True
        self.deferred = b""
        slots, self.slots = self.slots, deque()
        for slot in slots:
            if slot.late is not None and not slot.ready:
                slot.late.abandon()

    def check_invariants(self) -> None:
        slots = self.slots
        assert len(slots) <= self._requests_max
        assert self._sending or not slots or not slots[0].ready, "what is ready is about to be sent"
        assert all(slot.runs_ahead or slot is slots[-1] for slot in slots), (
            "nothing was taken behind who may change more"
        )
        assert not slots or not self.deferred, "what was deferred leaves before those behind it are taken"
        assert not self._closed or not self.busy
