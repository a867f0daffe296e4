"""Writing the markers that end a transaction: to ordinary partitions as control batches, to groups through their shard.

The coordinator ends its own transactions with it, WriteTxnMarkers those of others, and whoever aborts one that hangs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.coordinator.placement import CONSUMER_OFFSETS
from tidelog.env.promise import Promise
from tidelog.replica.replicas import NotOpenYet
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.markers import marker_record

if TYPE_CHECKING:
    from tidelog.coordinator.shards import Shards
    from tidelog.env.clock import Clock
    from tidelog.replica.partition import Partition
    from tidelog.replica.replicas import Replicas

_NOT_READY = frozenset(
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
)


class EndMarker(NamedTuple):
    """How a producer's transaction ended. `version`: the transaction version it ran in, which its epoch follows."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    version: int = 0


class Markers:
    """Writes markers to partitions that this broker leads."""

    __slots__ = ("_clock", "_groups", "_replicas")

    def __init__(self, replicas: Replicas, groups: Shards[Any, Any], clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    def write(self, topic: str, index: int, marker: EndMarker) -> Promise[None]:
        """Resolves when the marker is committed; fails with a KafkaError of the kind that WriteTxnMarkers answers."""
        try:
            partition = self._replicas.get(topic, index)
            partition.check_leader()
            partition.log.producers.check_marker(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.version
            )
            if topic == CONSUMER_OFFSETS:
                return self._end_in_group(index, marker)
            begun = partition.begin()
            return self._append(partition, marker) if begun is None else self._write_later(topic, index, marker, begun)
        except NotOpenYet as not_yet:
            return self._write_later(topic, index, marker, not_yet.opened)
        except KafkaError as error:
            return Promise[None].failed(error)

    def _write_later(self, topic: str, index: int, marker: EndMarker, opened: Promise[None]) -> Promise[None]:
        written: Promise[None] = Promise()

        def settle(promise: Promise[None]) -> None:
            if promise.error is not None:
                written.fail(promise.error)
            else:
                written.resolve(None)

        def write(promise: Promise[None]) -> None:
            if promise.error is not None:
                written.fail(promise.error)
            else:
                self.write(topic, index, marker).on_done(settle)

        opened.on_done(write)
        return written

    def _end_in_group(self, index: int, marker: EndMarker) -> Promise[None]:
        written: Promise[None] = Promise()

        def ended(promise: Promise[None]) -> None:
            error = promise.error
            if error is None:
                written.resolve(None)
            elif isinstance(error, KafkaError) and error.code in _NOT_READY:
                written.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message))
            else:
                written.fail(error)

        try:
            shard = self._groups.at(index)
            promise = shard.end_transaction(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commit
            )
        except KafkaError as error:
            promise = Promise[None].failed(error)
        promise.on_done(ended)
        return written

    def _append(self, partition: Partition, marker: EndMarker) -> Promise[None]:
        now_ms = self._clock.now_ms()
        data = build(
            [marker_record(marker.coordinator_epoch, now_ms, commit=marker.commit)],
            base_offset=partition.log.log_end,
            leader_epoch=partition.leader_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transactional=True,
            control=True,
        )
        next_offset = partition.append_own(memoryview(data), partition.leader_epoch, now_ms)
        written: Promise[None] = Promise()

        def acked(code: ErrorCode) -> None:
            if code:
                written.fail(KafkaError(code))
            else:
                written.resolve(None)

        partition.wait_for_ack(next_offset, acked)
        return written
