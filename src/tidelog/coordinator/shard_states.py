"""The states of a shard on this broker: which may follow which, and why nobody is answered from half a log.

               asked for, or its turn            read to the end         committed
    Absent --------------------------> Reading ------------------> Read ----------> Leading
      |  ^                               |  ^                        |                 |
      |  | its log was opened            |  | after a while          |                 | its log failed
      v  |                               v  |                        v                 v
    Opening ------------------------> Resting <----------------------+               Broken
             it couldn't be opened             it couldn't be led, for now

From every state the shard becomes Absent when another broker leads, in another leader epoch, or when the broker stops.

What is promised, and what keeps it:

- *One shard decides for a key.* A shard decides in Leading only, in the leader epoch that it was opened in; a change of
  the epoch makes it Absent before anything else hears of the new one, and fails who waits. What is read next is another
  object, in the new epoch.
- *A decision sees the whole log.* Leading comes after Read only, and Read when the log was folded to its end. What was
  read may not be durable (after a crash): Read waits until the high watermark has passed the end, so nobody is told
  what could yet be taken back. A wait that ends after the shard became something else is nobody's: it is compared by
  object.
- *Nothing is decided on a log that can't be read.* A damaged record, or a log that failed, makes it Broken, which only
  a new leader epoch ends: whoever asks is told NOT_COORDINATOR, and doesn't set off another try.
- *What may pass is tried again, and not by everyone who asks.* In Resting nobody opens the log: who asks is told to
  come again, and one timer makes it Absent and queues it. Each rest in a row is longer, up to a bound; Leading forgets
  them.
- *Nobody waits for ever.* Opening ends with its promise, Resting with its timer, Read with an acknowledgement or an
  error of the partition, and what is Absent or Reading is asked for again or in the queue, which is worked off while it
  has any.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from tidelog.coordinator.loading import Loading
    from tidelog.coordinator.shard import Shard

S = TypeVar("S")
L = TypeVar("L")


class ShardState(Enum):
    ABSENT = "absent"
    """Nothing of it is here: another broker leads, or nobody has asked yet."""
    OPENING = "opening"
    """Its log is being opened, off the loop."""
    READING = "reading"
    READ = "read"
    """To the end; it waits for the commit of what it read."""
    LEADING = "leading"
    """It decides."""
    RESTING = "resting"
    """What kept it from being loaded may pass: it is tried again after a while."""
    BROKEN = "broken"
    """It can't be used in this leader epoch."""


TRANSITIONS: dict[ShardState, frozenset[ShardState]] = {
    ShardState.ABSENT: frozenset({ShardState.OPENING, ShardState.READING}),
    ShardState.OPENING: frozenset({ShardState.READING, ShardState.RESTING, ShardState.ABSENT}),
    ShardState.READING: frozenset({ShardState.READ, ShardState.RESTING, ShardState.BROKEN, ShardState.ABSENT}),
    ShardState.READ: frozenset({ShardState.LEADING, ShardState.RESTING, ShardState.ABSENT}),
    ShardState.LEADING: frozenset({ShardState.BROKEN, ShardState.ABSENT}),
    ShardState.RESTING: frozenset({ShardState.ABSENT}),
    ShardState.BROKEN: frozenset({ShardState.ABSENT}),
}

LOADING = frozenset({ShardState.READING, ShardState.READ})
"""A log is open, and what it holds isn't decided on yet."""
SETTLED = frozenset({ShardState.LEADING, ShardState.BROKEN})
"""Whoever asks is answered for good, in this leader epoch."""


class Slot(Generic[S, L]):
    """One partition: its state, and what belongs to that."""

    __slots__ = ("index", "loading", "rest_s", "shard", "state")

    def __init__(self, index: int) -> None:
        self.index = index
        self.state = ShardState.ABSENT
        self.loading: Loading[S, L] | None = None
        """While it is read, and until what was read is committed."""
        self.shard: Shard[S, L] | None = None
        """While it leads, or is broken."""
        self.rest_s = 0.0
        """How long the last rest was; 0 since it last led."""

    def to(self, state: ShardState, *, loading: Loading[S, L] | None = None, shard: Shard[S, L] | None = None) -> None:
        """The next state, with what belongs to it; asserts that the table allows it."""
        assert state in TRANSITIONS[self.state], f"{self.index}: {self.state} can't become {state}"
        self.state = state
        self.loading = loading
        self.shard = shard

    @property
    def known(self) -> Shard[S, L] | None:
        """The shard that is read, leads or is broken: what a change of the cluster is compared with."""
        return self.loading.shard if self.loading is not None else self.shard

    def check_invariants(self) -> None:
        """What holds between any two events; for tests and simulation."""
        assert (self.loading is not None) == (self.state in LOADING)
        assert (self.shard is not None) == (self.state in SETTLED)
        if self.loading is not None:
            assert self.loading.is_read == (self.state is ShardState.READ)
            assert not self.loading.shard.leads, "it decides before all of its log is read and committed"
        if self.shard is not None:
            assert self.shard.leads == (self.state is ShardState.LEADING)
            self.shard.machine.check_invariants()
        assert self.known is None or self.known.index == self.index
        assert self.state is not ShardState.RESTING or self.rest_s > 0
        assert self.state is not ShardState.LEADING or self.rest_s == 0
