"""A partition as a replica: who leads it, how far it is committed, who waits for that, and what its followers have.

`partition.py` is what is written on top of it, by producers and from another leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from tidelog.metadata.directories import lost_replicas
from tidelog.replica.leading import Leading
from tidelog.replica.waiters import AckQueue, FetchWaiter, FollowerReader
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.slice import Slice
    from tidelog.metadata.image import PartitionImage
    from tidelog.replica.leading import InSyncReplicas
    from tidelog.replica.partition import Partition
    from tidelog.replica.resends import Resends
    from tidelog.replica.waiters import Waiting


class Commit(Protocol):
    """The group commit of the store."""

    def request(self, log: Log) -> None: ...


class Follower(Protocol):
    """Who copies a partition from its leader."""

    def log_changed(self, partition: Partition) -> None:
        """More of its log is durable, or it went offline."""
        ...


class Replica:
    """Owns the high watermark and the waiters; the log owns the records."""

    __slots__ = (
        "_acks",
        "_commit",
        "_deletions",
        "_fetches",
        "_in_sync",
        "_is_alone",
        "_leader_high_watermark",
        "_leader_log_start",
        "_node_id",
        "_readers",
        "_resends",
        "_wake_later",
        "deleted",
        "epoch_start",
        "follower",
        "high_watermark",
        "image",
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "leading",
        "log",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        image: PartitionImage,
        log: Log,
        *,
        node_id: int,
        commit: Commit,
        wake_later: Callable[[Partition], None],
        in_sync: InSyncReplicas | None = None,
        resends: Resends | None = None,
        high_watermark: int = 0,
    ) -> None:
        """`high_watermark` was known in an earlier life: it holds as far as the log does. Where there are other
        replicas, no more is known."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.deleted = False
        self._node_id = node_id
        self._commit = commit
        self._wake_later = wake_later
        self._in_sync = in_sync
        self._acks: AckQueue | None = None
        self._deletions: AckQueue | None = None
        self._readers: list[FollowerReader] | None = None
        self._fetches: dict[FetchWaiter, None] | None = None
        self._resends = resends
        self.image = image
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.isr = image.isr
        self._is_alone = image.replicas == (node_id,)
        self.leading = self._begin_leading(image)
        if image.isr == (node_id,) and not self._is_below_min_isr():
            self.high_watermark = log.durable_end
        else:
            self.high_watermark = max(log.log_start, min(high_watermark, log.durable_end))
        self.follower: Follower | None = None
        self._leader_high_watermark = self._leader_log_start = -1
        log.begin_at_high_watermark(self.high_watermark)
        self.epoch_start = log.log_end
        log.listener = self
        if image.leader == node_id:
            log.lead(image.leader_epoch)
        if log.durable_end < log.log_end:
            commit.request(log)

    @property
    def _partition(self) -> Partition:
        """Itself: there are no others."""
        return cast("Partition", self)

    # -- as the image says

    def follow_image(self, image: PartitionImage) -> None:
        """Take over what the controller decided. A new leader epoch sends those who wait to look again.

        Of the ISR the leader may know something newer, by the answer to what it asked for.
        """
        if image is self.image:
            return
        new_epoch = image.leader_epoch != self.leader_epoch or image.leader != self.leader
        other_replicas = image.replicas != self.image.replicas
        self.image = image
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self._is_alone = image.replicas == (self._node_id,)
        leading = self.leading
        if new_epoch or leading is None or self._is_alone:
            self.leading = self._begin_leading(image)
            self.isr = image.isr
        elif leading.decided(image.replicas, image.isr, image.partition_epoch, lost_replicas(image)):
            self.isr = image.isr
        if new_epoch:
            self._leader_high_watermark = self._leader_log_start = -1
            if image.leader == self._node_id and self.log.offline is None:
                self.log.lead(image.leader_epoch)
            self.epoch_start = self.log.log_end
            self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif other_replicas:
            self._turned()
        self.advance()
        self._look()

    def _begin_leading(self, image: PartitionImage) -> Leading | None:
        """What is known of the followers: nothing, where it begins to lead; None where it doesn't, or has none."""
        if image.leader != self._node_id or self._is_alone:
            return None
        now_ms = 0 if self._in_sync is None else self._in_sync.now_ms()
        return Leading(self._node_id, image.replicas, image.isr, image.partition_epoch, now_ms)

    def delete(self) -> None:
        """The topic is gone: whoever waits hears of it. The store deletes the files."""
        self.deleted = True
        self.log.listener = None
        self._release(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def remove(self) -> None:
        """This broker is no replica any more: whoever waits is to ask another one. The store deletes the files."""
        self.deleted = True
        self.log.listener = None
        self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_leader(self, current_epoch: int = -1) -> None:
        """Raises unless this broker leads the partition, in the epoch that the client believes in (-1: any)."""
        self._check_epoch(current_epoch)
        if self.leader != self._node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._check_log()

    def check_replica(self, current_epoch: int = -1) -> None:
        """Raises unless this broker has a replica of it, and knows of the leader what the client does (-1: no matter).

        A follower may be read by consumers, up to the high watermark that it knows (KIP-392).
        """
        self._check_epoch(current_epoch)
        if self.leader != self._node_id and (self.leader < 0 or self._node_id not in self.image.replicas):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._check_log()

    def _check_epoch(self, current_epoch: int) -> None:
        if -1 != current_epoch != self.leader_epoch:
            if current_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def _check_log(self) -> None:
        if self.log.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.log.offline)

    @property
    def is_served(self) -> bool:
        """Whether `check_leader` lets a client of the right epoch pass."""
        return self.leader == self._node_id and self.log.offline is None

    # -- what is committed

    def wait_for_ack(
        self, next_offset: int, complete: Callable[[ErrorCode], None], waiter: Waiting | None = None
    ) -> None:
        """Call `complete` once everything below `next_offset` is committed, or can't be any more; not necessarily, if
        `waiter` is done by then."""
        if self.deleted:
            complete(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif self.log.offline is not None:
            complete(ErrorCode.KAFKA_STORAGE_ERROR)
        elif self.high_watermark >= next_offset:
            complete(ErrorCode.NONE)
        else:
            if self._acks is None:
                self._acks = AckQueue()
            self._acks.add(next_offset, complete, waiter)

    def advance(self) -> None:
        """Raise the high watermark to what all of the ISR have. Below min.insync.replicas it stands still."""
        log, leading = self.log, self.leading
        end = log.ends.durable_end
        if end <= self.high_watermark:
            return
        if leading is not None:
            if self._in_sync is None or self._is_below_min_isr():
                return
            end = leading.committed_end(end, log.ends.log_end, self._in_sync)
            if end <= self.high_watermark:
                return
        elif self.leader != self._node_id:
            return  # it is told by the leader
        self._rise(end)

    def _rise(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.log.advance_high_watermark(high_watermark)
        if self._acks:
            self._acks.rise(high_watermark)
        if self._fetches:
            self._wake_later(self._partition)
        if self._readers is not None:
            for reader in self._readers:
                reader.moved()

    @property
    def is_alone(self) -> bool:
        """Whether there is no other replica, so that what is durable here is committed."""
        return self._is_alone

    def _is_below_min_isr(self) -> bool:
        """As in Kafka, no more in-sync replicas are asked for than the partition has replicas."""
        return len(self.isr) < min(self.log.config.min_insync_replicas, len(self.image.replicas))

    # -- reading

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest open transaction begins, if it isn't deleted there, or the high watermark."""
        unstable = self.log.first_unstable
        return max(unstable, self.log.ends.log_start) if 0 <= unstable < self.high_watermark else self.high_watermark

    @property
    def catching_up(self) -> bool:
        """Whether the high watermark may still be below what an earlier leader, or an earlier start, has shown."""
        return self.high_watermark < self.epoch_start

    def read(self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool) -> Slice | None:
        """Records from the batch with `offset` to the high watermark, or the last stable offset if `committed`."""
        end = self.last_stable_offset if committed else self.high_watermark
        return self.log.read(offset, max_bytes, end, at_least_one=at_least_one)

    def park(self, waiter: FetchWaiter) -> None:
        if self._fetches is None:
            self._fetches = {waiter: None}
        else:
            self._fetches[waiter] = None

    def unpark(self, waiter: FetchWaiter) -> None:
        if self._fetches is not None:
            self._fetches.pop(waiter, None)
            if not self._fetches:
                self._fetches = None

    @property
    def waiting_fetches(self) -> int:
        """How many fetches wait for more to read here: Kafka's purgatory size, for one partition."""
        return len(self._fetches or ())

    @property
    def waiting_acks(self) -> int:
        """How many wait for the high watermark, or did so and gave up."""
        return len(self._acks or ())

    def wake_fetches(self) -> None:
        for waiter in list(self._fetches or ()):
            waiter.wake(self._partition)

    def expire_fetches(self) -> None:
        """The broker stops: whoever waits is answered now."""
        for waiter in list(self._fetches or ()):
            waiter.expire()

    # -- what the log tells

    def durable_advanced(self, log: Log) -> None:
        if self.follower is not None:
            self._partition.follow_leader()
            self.follower.log_changed(self._partition)
        self.advance()

    def start_moved(self, log: Log) -> None:
        """It begins further on: followers hear of it with the next answer."""
        for reader in self._readers or ():
            reader.moved()
        if self._deletions:
            self._deletions.rise(self.low_watermark)

    def went_offline(self, log: Log) -> None:
        if self.follower is not None:
            self.follower.log_changed(self._partition)
        self._release(ErrorCode.KAFKA_STORAGE_ERROR)

    def _release(self, code: ErrorCode) -> None:
        if self._acks:
            self._acks.fail(code)
        if self._deletions:
            self._deletions.fail(code)
        if self._fetches:
            self._wake_later(self._partition)
        self._turned()

    def _turned(self) -> None:
        for reader in list(self._readers or ()):
            reader.turned()

    # -- followers, where this broker leads

    def follower_fetched(self, id: int, broker_epoch: int, current_epoch: int, offset: int, log_start: int) -> None:
        """A follower asks for what is at `offset`, and so has all before it, of this leader or one that it agrees with.

        Raises where it is no replica, or its broker came back since, or the log doesn't reach from there.
        """
        log, leading = self.log, self.leading
        if leading is None or id not in leading.followers or self._in_sync is None:
            # Who names the right epoch may know of its assignment before this broker does, and comes again.
            knows = current_epoch == self.leader_epoch
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if knows else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ends = log.ends
        if not ends.log_start <= offset <= ends.log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{log.place} has offsets {ends.log_start} to {ends.log_end}; broker {id} asks for {offset}",
            )
        moved, start_moved = leading.fetched(id, broker_epoch, offset, log_start, ends.log_end, self._in_sync.now_ms())
        if moved:
            self.advance()
        if leading.has_others and id not in leading.isr:
            self._look()
        if start_moved and self._deletions:
            self._deletions.rise(self.low_watermark)

    def read_to_end(self, offset: int, max_bytes: int, *, at_least_one: bool) -> Slice | None:
        """As `read`, for a follower: what is written, be it committed, and durable here, or not."""
        return self.log.read(offset, max_bytes, self.log.ends.log_end, at_least_one=at_least_one)

    def add_reader(self, reader: FollowerReader) -> None:
        if self._readers is None:
            self._readers = [reader]
        else:
            self._readers.append(reader)

    def remove_reader(self, reader: FollowerReader) -> None:
        if self._readers is not None and reader in self._readers:
            self._readers.remove(reader)
            self._readers = self._readers or None

    def was_caught_up(self, id: int, at_ms: int) -> None:
        """The follower had everything at this time."""
        if self.leading is not None:
            self.leading.was_caught_up(id, at_ms)

    def wanted_isr(self) -> tuple[int, ...] | None:
        """The ISR that the controller is to be asked for; None: it is as it should be, or it was asked already."""
        leading = self.leading
        if leading is None or self.deleted or not self.is_served or self._in_sync is None:
            return None
        return leading.wanted(self.high_watermark, self.epoch_start, self.log.ends.log_end, self._in_sync)

    def isr_settled(self) -> None:
        """The controller answered what was asked of it."""
        if self.leading is not None:
            self.isr = self.leading.isr
            self.advance()
            self._look()

    def brokers_changed(self) -> None:
        """Others may join the ISR now, or no longer; or time has passed."""
        self.advance()
        if self._deletions:
            self._deletions.rise(self.low_watermark)
        self._look()

    def _look(self) -> None:
        if self._in_sync is not None and self.leading is not None:
            self._in_sync.look(self._partition)

    @property
    def low_watermark(self) -> int:
        """The least log start over all replicas that live; -1 where one of them hasn't told its own yet."""
        if self.leading is None or self._in_sync is None:
            return self.log.ends.log_start
        return self.leading.low_watermark(self.log.ends.log_start, self._in_sync)

    def wait_for_low_watermark(self, offset: int, complete: Callable[[ErrorCode], None]) -> None:
        """Call `complete` once all replicas that live begin at `offset` or behind it, or won't be heard of here."""
        if self.deleted:
            complete(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif self.low_watermark >= offset:
            complete(ErrorCode.NONE)
        else:
            if self._deletions is None:
                self._deletions = AckQueue()
            self._deletions.add(offset, complete)

    def check_invariants(self) -> None:
        log = self.log
        assert log.log_start <= self.high_watermark or self.high_watermark == log.durable_end, (
            f"{self.topic}-{self.index}: log start {log.log_start} above high watermark {self.high_watermark}"
        )
        assert self.high_watermark <= log.durable_end <= log.log_end, (
            f"{self.topic}-{self.index}: high watermark {self.high_watermark}, durable end {log.durable_end}, "
            f"log end {log.log_end}"
        )
        if self.leading is not None:
            self.leading.check_invariants()
