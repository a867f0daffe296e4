"""Carrying out a decided end: markers to every partition of the transaction, then the record that it is over.

Begun when the Prepare record is committed, and again after a load that finds one. Markers are tried until each is
written, so an end is only ever late. Where a partition's leader is another broker, and who that is, is looked up at
each try (delivery.py).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.bounds import MARKER_RETRY_S, MARKER_RETRY_S_MAX
from tidelog.coordinator.txn import decide
from tidelog.coordinator.txn.decide import Producer
from tidelog.coordinator.txn.markers import EndMarker
from tidelog.coordinator.txn.replay import in_version
from tidelog.coordinator.txn.state import ENDING, Status, Transaction
from tidelog.env.promise import Promise, gather
from tidelog.env.slices import Steps, mapped, ordered, settled
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidelog.coordinator.txn.delivery import Delivery
    from tidelog.coordinator.txn.questions import TransactionShard
    from tidelog.env.loop import Timer
    from tidelog.metadata.follow import ChangedTopics, Follower
    from tidelog.metadata.image import ClusterImage

log = logging.getLogger("tidelog.transactions")

AT_ONCE = 512
"""Markers of one transaction that are on their way to logs of this broker at once."""
MARKERS_A_STEP = 64
LEADER_CAME_S = 0.1
"""When something about leaders has changed: they come in numbers, and need a moment until they are there."""
_AWAITED = frozenset((ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER))
"""What passes when a leader comes, or comes back: of a broker that died, thousands of partitions say so."""


class Ending:
    def __init__(self, delivery: Delivery, metadata: Follower, version: Callable[[], int]) -> None:
        self._delivery = delivery
        self._metadata = metadata
        self._version = version
        self._awaiting: dict[_End, None] = {}
        """Those that wait for a leader."""
        metadata.subscribe(self._image_changed)

    def begin(self, shard: TransactionShard, transactional_id: str) -> None:
        """Write the markers, if an end was decided, as soon as that is committed, unless somebody is at it."""
        transaction = shard.machine.newest.transactions.get(transactional_id)
        if transaction is None or transaction.status not in ENDING or transactional_id in shard.live.ending:
            return
        if not shard.leads:
            return  # what it knows may be out of date
        if shard.state.transactions.get(transactional_id) != transaction:
            shard.schedule(MARKER_RETRY_S, partial(self.begin, shard, transactional_id))
            return
        shard.live.ending.add(transactional_id)
        if transaction.partitions:
            self._mark(_End(shard, transaction), transaction.partitions)
        else:
            self._complete(shard, transaction)

    def _mark(self, end: _End, partitions: Collection[TopicPartition]) -> None:
        def handed_over(promise: Promise[None]) -> None:
            if promise.error is not None:
                message = "marking the end of %s's transaction failed, it is tried again"
                log.error(message, end.transaction.transactional_id, exc_info=promise.error)
                for partition in left:
                    self._again(end, partition, awaited=False)

        left = set(partitions)
        end.shard.drive(self._write(end, left)).on_done(handed_over)

    def _write(self, end: _End, left: set[TopicPartition]) -> Steps[None]:
        """Markers to all that are left; those for partitions of this broker some at a time."""
        transaction = end.transaction
        marker = EndMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.status == Status.PREPARE_COMMIT,
            end.shard.epoch,
            transaction.version,
        )
        partitions = yield from ordered(list(left))
        here: list[TopicPartition] = []
        for place, partition in enumerate(partitions, 1):
            if self._delivery.is_here(*partition):
                here.append(partition)
            else:  # all of them at once: a broker that doesn't answer holds nobody else up
                self._write_one(end, left, partition, marker)
            if not place % MARKERS_A_STEP:
                yield
        for start in range(0, len(here), AT_ONCE):
            some = here[start : start + AT_ONCE]
            written = yield from mapped(lambda partition: self._write_one(end, left, partition, marker), some)
            yield from settled(gather(written))
            if not end.shard.leads:
                break

    def _write_one(
        self, end: _End, left: set[TopicPartition], partition: TopicPartition, marker: EndMarker
    ) -> Promise[None]:
        """Whatever goes wrong with one of them, the others get theirs."""
        try:
            promise = self._delivery.write(*partition, marker)
        except Exception as error:
            log.exception("writing a marker to %s-%d failed", *partition)
            promise = Promise[None].failed(error)
        left.discard(partition)
        promise.on_done(partial(self._settled, end, partition))
        return promise

    def _settled(self, end: _End, partition: TopicPartition, promise: Promise[None]) -> None:
        """One of them is written, or has to be tried again."""
        if promise.error is not None and self._try_again(end.transaction, partition, promise.error):
            self._again(end, partition, awaited=_code_of(promise.error) in _AWAITED)
            return
        end.left -= 1
        if not end.left and end.shard.leads:  # else the next leader finds the Prepare record
            self._complete(end.shard, end.transaction)

    def _again(self, end: _End, partition: TopicPartition, *, awaited: bool) -> None:
        """Try it again after a while, with all others that failed by then; soon, if a leader comes before that."""
        if not end.shard.leads:
            return
        if end.timer is None:
            end.timer = end.shard.schedule(end.retry_s, partial(self._retry, end))
            end.retry_s = min(2 * end.retry_s, MARKER_RETRY_S_MAX)
        if awaited:
            self._awaiting[end] = None
        end.failed.append(partition)

    def _retry(self, end: _End) -> None:
        self._awaiting.pop(end, None)
        end.timer = None
        failed, end.failed = end.failed, []
        self._mark(end, failed)

    def _image_changed(
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed: set[tuple[int, str]]
    ) -> None:
        """Partitions may have leaders now: those that wait look, all that changes in a moment at once."""
        if self._awaiting and (changed_topics or old.brokers is not new.brokers):
            awaiting, self._awaiting = self._awaiting, {}
            for end in awaiting:
                if end.timer is not None and end.shard.leads:
                    end.timer.cancel()
                    end.timer = end.shard.schedule(LEADER_CAME_S, partial(self._retry, end))

    def _try_again(self, transaction: Transaction, partition: TopicPartition, error: BaseException) -> bool:
        """Whether the marker has to be tried again; False: it isn't needed any more."""
        topic, index = partition
        code = _code_of(error)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._metadata.image.partition(topic, index) is None:
            return False  # deleted meanwhile
        log.log(
            logging.DEBUG if code in _AWAITED else logging.WARNING,
            "the end of %s's transaction can't be marked in %s-%d: %s",
            transaction.transactional_id,
            topic,
            index,
            error,
        )
        # A higher epoch was there: what this one wrote has been ended by whoever raised it.
        return code != ErrorCode.INVALID_PRODUCER_EPOCH

    def _complete(self, shard: TransactionShard, transaction: Transaction, retry_s: float = MARKER_RETRY_S) -> None:
        transactional_id = transaction.transactional_id
        producer = Producer(transaction.producer_id, transaction.producer_epoch)
        level = self._version()
        promise = shard.submit(
            lambda state, now_ms: in_version(decide.complete(state, transactional_id, producer, now_ms), level)
        )
        if promise.error is None:  # appended: whatever comes next is decided, and committed, behind it
            shard.live.ended(transactional_id)
        elif shard.leads:
            log.warning("the end of %s's transaction can't be written down: %s", transactional_id, promise.error)
            retry = partial(self._complete, shard, transaction, min(2 * retry_s, MARKER_RETRY_S_MAX))
            shard.schedule(retry_s, retry)


class _End:
    """An end on its way. `left` partitions have no marker yet; those that `failed` are tried again soon."""

    __slots__ = ("failed", "left", "retry_s", "shard", "timer", "transaction")

    def __init__(self, shard: TransactionShard, transaction: Transaction) -> None:
        self.shard = shard
        self.transaction = transaction
        self.left = len(transaction.partitions)
        self.failed: list[TopicPartition] = []
        self.timer: Timer | None = None
        self.retry_s = MARKER_RETRY_S


def _code_of(error: BaseException) -> ErrorCode:
    return error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
