"""What the leader of a partition knows of its followers, and what follows from it: the high watermark, and the ISR.

A follower tells how far it is with each fetch: the offset that it asks for. The controller alone decides the ISR; the
leader asks it for another one, and learns what it is by the answer or by the metadata, whichever comes first: the
partition epoch alone says which word is newer. In between the ISR may be either, so that the *maximal* one counts: a
record is committed only once every replica has it that the controller may take for one of the ISR.

A record that is below the high watermark is on every replica of the maximal ISR; a replica joins only with all records
below the high watermark, and of the earlier leaders (`epoch_start`); and until it is known not to have joined, the high
watermark waits for it. So whoever is elected from the ISR has what was shown or acknowledged. Only its broker's
present registration may join (KIP-903): one that came back may have lost what it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from tidelog.replica.partition import Partition

UNKNOWN = -1
NEVER = -(2**62)
"""When a follower that never was caught up, was."""


class Brokers(Protocol):
    """What is known of the brokers that followers are on."""

    lag_ms: int
    """A follower that isn't caught up for so long leaves the ISR."""

    def now_ms(self) -> int: ...

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the broker is registered with this epoch, and neither fenced nor shutting down."""
        ...

    def is_alive(self, broker_id: int) -> bool:
        """Whether it is registered and not fenced."""
        ...


class InSyncReplicas(Brokers, Protocol):
    """Who has the ISR changed (`in_sync.py`)."""

    def look(self, partition: Partition) -> None:
        """Its ISR may be another than it should be."""
        ...


class Follower:
    """One replica, as its last fetch told."""

    __slots__ = ("broker_epoch", "caught_up_ms", "end", "fetched_ms", "leader_end", "log_start")

    def __init__(self, caught_up_ms: int) -> None:
        self.end = UNKNOWN
        """The offset that it asked for: it has everything below."""
        self.log_start = UNKNOWN
        self.broker_epoch = UNKNOWN
        self.caught_up_ms = caught_up_ms
        """When it last had all that the leader had."""
        self.fetched_ms = NEVER
        self.leader_end = UNKNOWN
        """The leader's log end when it fetched last."""

    def is_caught_up(self, log_end: int, now_ms: int, lag_ms: int) -> bool:
        return self.end == log_end or now_ms - self.caught_up_ms <= lag_ms


class Leading:
    """A partition with several replicas, while this broker leads it in one leader epoch."""

    __slots__ = ("_asked", "_in_flight", "_node_id", "followers", "isr", "maximal_isr", "partition_epoch")

    def __init__(
        self, node_id: int, replicas: Iterable[int], isr: tuple[int, ...], partition_epoch: int, now_ms: int
    ) -> None:
        """It comes to lead: those in the ISR have as long as all others to show that they are caught up."""
        self._node_id = node_id
        self._asked: frozenset[int] | None = None
        self._in_flight = False
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.maximal_isr = frozenset(isr)
        """Whoever may be in the ISR by now."""
        self.followers = {id: Follower(now_ms if id in isr else NEVER) for id in replicas if id != node_id}

    # -- what the controller says

    def decided(
        self, replicas: Iterable[int], isr: tuple[int, ...], partition_epoch: int, lost: Container[int] = ()
    ) -> bool:
        """It is so since `partition_epoch`; False where something newer is known. What was known of replicas that are
        `lost`, as their logs failed, doesn't count any more: they would join again on the spot."""
        if partition_epoch < self.partition_epoch:
            return False
        if partition_epoch > self.partition_epoch:
            self._asked = None
            self._in_flight = False
        self.isr = isr
        self.partition_epoch = partition_epoch
        kept = self.followers
        self.followers = {
            id: Follower(NEVER) if id in lost else kept.get(id) or Follower(NEVER)
            for id in replicas
            if id != self._node_id
        }
        self._reckon()
        return True

    def answered(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller's answer to what was asked last."""
        self._in_flight = False
        if partition_epoch >= self.partition_epoch:
            self._asked = None
            self.isr = isr
            self.partition_epoch = partition_epoch
            self._reckon()

    def refused(self) -> None:
        """The ISR stays as it is known: what was asked for isn't done, and won't be."""
        self._asked = None
        self._in_flight = False
        self._reckon()

    def unanswered(self) -> None:
        """What was asked for may be done, now or later: it counts until the controller says what is."""
        self._in_flight = False

    # -- what followers say

    def fetched(
        self, id: int, broker_epoch: int, offset: int, log_start: int, log_end: int, now_ms: int
    ) -> tuple[bool, bool]:
        """The follower has everything below `offset`. Whether its end, and its log's start, are others than before.

        Raises NOT_LEADER_OR_FOLLOWER where its broker is known to have come back since it asked.
        """
        follower = self.followers[id]
        if broker_epoch != follower.broker_epoch:
            if broker_epoch < follower.broker_epoch:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"broker {id} asks with epoch {broker_epoch}, and did with {follower.broker_epoch} before",
                )
            if follower.broker_epoch != UNKNOWN:  # what it had as another doesn't count
                follower.caught_up_ms, follower.leader_end = NEVER, UNKNOWN
            follower.broker_epoch = broker_epoch
        if offset >= log_end:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif offset >= follower.leader_end >= 0:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        moved = follower.end != offset, follower.log_start != log_start
        follower.end, follower.log_start = offset, log_start
        follower.leader_end, follower.fetched_ms = log_end, now_ms
        return moved

    def was_caught_up(self, id: int, at_ms: int) -> None:
        """A session's fetch at this time meant, without naming the partition, that the follower had all there was."""
        follower = self.followers.get(id)
        if follower is not None and follower.caught_up_ms < at_ms:
            follower.caught_up_ms = at_ms

    # -- what follows

    def committed_end(self, durable_end: int, log_end: int, brokers: Brokers) -> int:
        """The least end over the maximal ISR, and over those that are about to join it: they could never do so while
        the high watermark runs ahead of them. This one's is `durable_end`. It may be below the high watermark."""
        end, maximal_isr = durable_end, self.maximal_isr
        for id, follower in self.followers.items():
            if follower.end < end and (id in maximal_isr or self._is_joining(id, follower, log_end, brokers)):
                end = follower.end
        return end

    @staticmethod
    def _is_joining(id: int, follower: Follower, log_end: int, brokers: Brokers) -> bool:
        return (
            follower.end >= 0
            and follower.is_caught_up(log_end, brokers.now_ms(), brokers.lag_ms)
            and brokers.may_join(id, follower.broker_epoch)
        )

    @property
    def has_others(self) -> bool:
        """Whether there are replicas that aren't in the ISR."""
        return len(self.isr) <= len(self.followers)

    def wanted(self, high_watermark: int, epoch_start: int, log_end: int, brokers: Brokers) -> tuple[int, ...] | None:
        """The ISR to ask for. None: it is as it should be, or an answer is awaited."""
        if self._in_flight:
            return None
        now_ms, least = brokers.now_ms(), max(high_watermark, epoch_start)
        wanted = [
            id
            for id in self.isr
            if id == self._node_id or self.followers[id].is_caught_up(log_end, now_ms, brokers.lag_ms)
        ]
        for id, follower in self.followers.items():
            if id not in self.isr and follower.end >= least and self._is_joining(id, follower, log_end, brokers):
                wanted.append(id)
        if self._asked is None and set(wanted) == set(self.isr):
            return None
        return tuple(wanted)

    def ask(self, isr: tuple[int, ...]) -> list[tuple[int, int]]:
        """This one is asked for; its members with their broker epochs, -1 where none is known."""
        self._in_flight = True
        self._asked = (self._asked or frozenset()) | frozenset(isr)
        self._reckon()
        known = self.followers
        return [(id, known[id].broker_epoch if id in known else UNKNOWN) for id in isr]

    def low_watermark(self, log_start: int, brokers: Brokers) -> int:
        """The least log start over all replicas that live; -1 while one hasn't told its own."""
        starts = [one.log_start for id, one in self.followers.items() if brokers.is_alive(id)]
        return min([log_start, *starts])

    def _reckon(self) -> None:
        self.maximal_isr = frozenset(self.isr) | (self._asked or frozenset())

    def check_invariants(self) -> None:
        assert self._node_id in self.isr, f"the leader {self._node_id} is not in the ISR {self.isr}"
        assert set(self.isr) <= self.maximal_isr <= {self._node_id, *self.followers}, (
            f"ISR {self.isr}, maximal {set(self.maximal_isr)}, followers {list(self.followers)}"
        )
        assert self._asked is not None or set(self.isr) == self.maximal_isr
