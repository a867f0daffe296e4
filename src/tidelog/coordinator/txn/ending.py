"""Carrying out a decided end: markers to every partition of the transaction, then the record that it is over.

Begun when the Prepare record is committed, and again after a load that finds one. Markers are tried until each is
written, so an end is only ever late.
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
    from collections.abc import Callable

    from tidelog.coordinator.txn.markers import Markers
    from tidelog.coordinator.txn.questions import TransactionShard
    from tidelog.metadata.follow import Follower

log = logging.getLogger("tidelog.transactions")

AT_ONCE = 512
"""Markers of one transaction that are on their way to their logs at once."""


class Ending:
    def __init__(self, markers: Markers, metadata: Follower, version: Callable[[], int]) -> None:
        self._markers = markers
        self._metadata = metadata
        self._version = version

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
        self._mark(shard, transaction, list(transaction.partitions), MARKER_RETRY_S)

    def _mark(
        self, shard: TransactionShard, transaction: Transaction, partitions: list[TopicPartition], retry_s: float
    ) -> None:
        def marked(promise: Promise[list[TopicPartition]]) -> None:
            if not shard.leads:
                return  # the next leader finds the Prepare record
            if promise.error is not None:
                message = "marking the end of %s's transaction failed, it is tried again"
                log.error(message, transaction.transactional_id, exc_info=promise.error)
            left = partitions if promise.error is not None else promise.result()
            if left:
                retry = partial(self._mark, shard, transaction, left, min(2 * retry_s, MARKER_RETRY_S_MAX))
                shard.schedule(retry_s, retry)
            else:
                self._complete(shard, transaction)

        shard.drive(self._write(shard, transaction, partitions)).on_done(marked)

    def _write(
        self, shard: TransactionShard, transaction: Transaction, partitions: list[TopicPartition]
    ) -> Steps[list[TopicPartition]]:
        """Markers to all of them, some at a time; those where it has to be tried again."""
        marker = EndMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.status == Status.PREPARE_COMMIT,
            shard.epoch,
            transaction.version,
        )
        partitions = yield from ordered(partitions)
        again: list[TopicPartition] = []
        for start in range(0, len(partitions), AT_ONCE):
            some = partitions[start : start + AT_ONCE]
            written = yield from mapped(lambda partition: self._write_one(partition, marker), some)
            yield from settled(gather(written))
            for partition, promise in zip(some, written, strict=True):
                if promise.error is not None and self._try_again(transaction, partition, promise.error):
                    again.append(partition)
            if not shard.leads:
                break
        return again

    def _write_one(self, partition: TopicPartition, marker: EndMarker) -> Promise[None]:
        """Whatever goes wrong with one of them, the others get theirs."""
        try:
            return self._markers.write(*partition, marker)
        except Exception as error:
            log.exception("writing a marker to %s-%d failed", *partition)
            return Promise[None].failed(error)

    def _try_again(self, transaction: Transaction, partition: TopicPartition, error: BaseException) -> bool:
        """Whether the marker has to be tried again; False: it isn't needed any more."""
        topic, index = partition
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._metadata.image.partition(topic, index) is None:
            return False  # deleted meanwhile
        log.warning(
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
