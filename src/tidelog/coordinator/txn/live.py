"""What a shard of transactions remembers beside its log: ends on their way, who waits for them, deadlines."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.coordinator.txn.decide import Producer
from tidelog.coordinator.txn.state import NO_EPOCH

if TYPE_CHECKING:
    from tidelog.env.loop import Timer


class Waiting(Protocol):
    """Whoever waits for the end of a transaction."""

    def go_on(self) -> None: ...


class LastEpoch(NamedTuple):
    """The epoch that a producer had before the present one; NO_EPOCH: none that it may go on with."""

    producer: Producer
    last_epoch: int


class TransactionsLive:
    """Made anew when a shard is loaded: nothing in it is needed to go on, only to go on faster."""

    __slots__ = ("_deadlines", "_heard", "_last_epochs", "_watched", "ending", "timer", "waiting")

    def __init__(self) -> None:
        self.ending: set[str] = set()
        """Transactional ids whose markers are being written."""
        self.waiting: dict[str, dict[Waiting, None]] = {}
        """Who waits, by transactional id, until its last transaction has ended; each goes on once, in order."""
        self.timer: Timer | None = None
        """Goes off at the first deadline."""
        self._deadlines: list[tuple[int, str]] = []
        self._watched: dict[str, int] = {}
        self._last_epochs: dict[str, LastEpoch] = {}
        self._heard: dict[str, int] = {}

    # -- leases: of two-phase transactions that are open

    def heard(self, transactional_id: str, now_ms: int) -> None:
        """Somebody counts on the id's open transaction."""
        self._heard[transactional_id] = now_ms

    def last_heard_ms(self, transactional_id: str, now_ms: int) -> int:
        """When somebody last did; now, where that isn't known: a lease begins anew with each leader."""
        return self._heard.setdefault(transactional_id, now_ms)

    # -- deadlines: an id is looked at once, at the earliest it was given, whatever became of the transaction by then

    @property
    def first_deadline_ms(self) -> int | None:
        return self._deadlines[0][0] if self._deadlines else None

    def watch(self, transactional_id: str, deadline_ms: int) -> bool:
        """Look at this id at its deadline, or at an earlier one that it has already; whether it is now the first."""
        watched_ms = self._watched.get(transactional_id)
        if watched_ms is not None and watched_ms <= deadline_ms:
            return False
        self._watched[transactional_id] = deadline_ms
        heappush(self._deadlines, (deadline_ms, transactional_id))
        return self._deadlines[0][1] == transactional_id

    def due(self, now_ms: int, most: int) -> list[str]:
        """The first ids whose deadlines are past; they are no longer watched."""
        due_ids: list[str] = []
        while self._deadlines and self._deadlines[0][0] < now_ms and len(due_ids) < most:
            deadline_ms, transactional_id = heappop(self._deadlines)
            if self._watched.get(transactional_id) == deadline_ms:  # else an earlier one came after it
                del self._watched[transactional_id]
                due_ids.append(transactional_id)
        return due_ids

    # -- epochs before the present ones

    def remember_epoch(self, transactional_id: str, epoch: LastEpoch) -> None:
        if epoch.last_epoch == NO_EPOCH:
            self.forget_epoch(transactional_id)
        else:
            self._last_epochs[transactional_id] = epoch

    def forget_epoch(self, transactional_id: str) -> None:
        self._last_epochs.pop(transactional_id, None)

    def last_epoch(self, transactional_id: str, present: Producer) -> int:
        """The epoch before, if the present producer got its own by asking with it."""
        producer, last_epoch = self._last_epochs.get(transactional_id, (None, NO_EPOCH))
        return last_epoch if producer == present else NO_EPOCH

    # -- waiting for an end

    def ended(self, transactional_id: str) -> None:
        """The end is complete: whoever waited for it goes on."""
        self.ending.discard(transactional_id)
        self._heard.pop(transactional_id, None)
        for waiting in self.waiting.pop(transactional_id, ()):
            waiting.go_on()

    def give_up(self, transactional_id: str, waiting: Waiting) -> None:
        others = self.waiting[transactional_id]
        del others[waiting]
        if not others:
            del self.waiting[transactional_id]
