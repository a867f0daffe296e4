"""What a shard of transactions remembers beside its log: ends on their way, who waits for them, deadlines."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from tidelog.coordinator.txn.decide import Producer
from tidelog.coordinator.txn.state import NO_EPOCH

if TYPE_CHECKING:
    from tidelog.env.loop import Timer


class Waiting(Protocol):
    """Whoever waits for the end of a transaction."""

    def go_on(self) -> None: ...


class TransactionsLive:
    """Made anew when a shard is loaded: nothing in it is needed to go on, only to go on faster."""

    __slots__ = ("_deadlines", "_last_epochs", "_watched", "ending", "timer", "waiting")

    def __init__(self) -> None:
        self.ending: set[str] = set()
        """Transactional ids whose markers are being written."""
        self.waiting: dict[str, dict[Waiting, None]] = {}
        """Who waits, by transactional id, until its last transaction has ended; each goes on once, in order."""
        self.timer: Timer | None = None
        """Goes off at the first deadline."""
        self._deadlines: list[tuple[int, str]] = []
        self._watched: set[str] = set()
        self._last_epochs: dict[str, tuple[Producer, int]] = {}

    # -- deadlines: one entry an id, whatever became of the transaction it was made for

    @property
    def first_deadline_ms(self) -> int | None:
        return self._deadlines[0][0] if self._deadlines else None

    def watch(self, transactional_id: str, deadline_ms: int) -> bool:
        """Look at this id at its deadline; whether that is now the first one."""
        if transactional_id in self._watched:
            return False
        self._watched.add(transactional_id)
        heappush(self._deadlines, (deadline_ms, transactional_id))
        return self._deadlines[0][1] == transactional_id

    def due(self, now_ms: int, most: int) -> list[str]:
        """The first ids whose deadlines are past; they are no longer watched."""
        found: list[str] = []
        while self._deadlines and self._deadlines[0][0] < now_ms and len(found) < most:
            found.append(heappop(self._deadlines)[1])
        self._watched.difference_update(found)
        return found

    # -- epochs before the present ones

    def remember_epoch(self, transactional_id: str, producer: Producer, last_epoch: int) -> None:
        if last_epoch == NO_EPOCH:
            self._last_epochs.pop(transactional_id, None)
        else:
            self._last_epochs[transactional_id] = producer, last_epoch

    def last_epoch(self, transactional_id: str, present: Producer) -> int:
        """The epoch before, if the present producer got its own by asking with it."""
        producer, last_epoch = self._last_epochs.get(transactional_id, (None, NO_EPOCH))
        return last_epoch if producer == present else NO_EPOCH

    # -- waiting for an end

    def ended(self, transactional_id: str) -> None:
        """The end is complete: whoever waited for it goes on."""
        self.ending.discard(transactional_id)
        for waiting in self.waiting.pop(transactional_id, ()):
            waiting.go_on()

    def give_up(self, transactional_id: str, waiting: Waiting) -> None:
        others = self.waiting[transactional_id]
        del others[waiting]
        if not others:
            del self.waiting[transactional_id]
