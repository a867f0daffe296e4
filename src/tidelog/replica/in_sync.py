"""Has the controller change the in-sync replicas of the partitions that this broker leads (AlterPartition).

A follower that has all records is asked in, one that isn't caught up for `replica.lag.time.max.ms` is asked out: what
is wanted of a partition is `leading.py`'s to say. It is looked at when a follower outside of the ISR fetches, when the
metadata say something new of the partition or of brokers, and twice per lag time. Many partitions go into one request,
and one request is under way at a time. What is decided comes by the answer, and by the metadata.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidelog.wire.errors import ErrorCode, KafkaError, error_code
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.env import Environment
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps
    from tidelog.metadata.follow import ChangedTopics
    from tidelog.metadata.image import ClusterImage
    from tidelog.replica.leading import Leading
    from tidelog.replica.partition import Partition

log = logging.getLogger("tidelog.replica")

AGAIN_S = 0.2
"""Until the controller is asked again for those that it refused, or didn't answer."""
PARTITIONS_MAX = 1000
"""As many are asked for in one request."""
LOOKS_A_STEP = 64

Place = tuple[bytes, int]

NOT_DONE = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""The ISR is what it was, and what was asked for won't come. With any other error it may: the metadata will tell."""


class InSync:
    """`ask` asks the active controller; `broker_epoch` is this broker's; `partitions` are those that it has."""

    def __init__(
        self,
        env: Environment,
        node_id: int,
        image: Callable[[], ClusterImage],
        partitions: Iterable[Partition],
        ask: Callable[[AlterPartitionRequest], Promise[Any]],
        broker_epoch: Callable[[], int],
        *,
        lag_ms: int,
    ) -> None:
        self._loop = env.loop
        self._clock = env.clock
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._ask = ask
        self._broker_epoch = broker_epoch
        self.lag_ms = lag_ms
        self._due: dict[Place, Partition] = {}
        self._paused: set[Place] = set()
        """Of these the controller didn't do what was asked: it is asked again after a while."""
        self._asking = False
        self._refused = False
        self._stopped = False

    # -- what leaders ask

    def now_ms(self) -> int:
        """Of a clock that nobody sets."""
        return int(self._clock.monotonic() * 1000)

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._image().brokers.get(broker_id)
        return broker is not None and broker.active and broker.epoch == broker_epoch

    def is_alive(self, broker_id: int) -> bool:
        broker = self._image().brokers.get(broker_id)
        return broker is not None and not broker.fenced

    # -- when it is looked at them

    def start(self) -> None:
        """Look at all of them twice per lag time, for followers that don't come any more."""
        self._loop.call_later(self.lag_ms / 2000, self._look_at_all)

    def stop(self) -> None:
        """Nothing more is asked for."""
        self._stopped = True
        self._due.clear()

    def _look_at_all(self) -> None:
        if self._stopped:
            return
        self._loop.spread(self._looks(set())).on_done(lambda _: self.start())

    def brokers_changed(
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed: set[tuple[int, str]]
    ) -> Steps[None] | None:
        """Brokers that may join an ISR now, or no longer, and what follows for the partitions that they are in."""
        if old.brokers is new.brokers:
            return None
        ids = {id for id in {*old.brokers, *new.brokers} if old.brokers.get(id) != new.brokers.get(id)}
        ids.discard(self._node_id)
        return self._looks(ids) if ids else None

    def _looks(self, ids: set[int]) -> Steps[None]:
        """At the partitions that have a follower on one of these brokers; at all, where none is named."""
        for count, partition in enumerate(list(self._partitions), 1):
            leading = partition.leading
            if leading is not None and (not ids or not ids.isdisjoint(leading.followers)):
                partition.brokers_changed()
            if not count % LOOKS_A_STEP:
                yield

    def look(self, partition: Partition) -> None:
        """It was opened, the controller changed it, or a follower of it has come further."""
        place = partition.topic_id, partition.index
        if self._stopped or place in self._due or place in self._paused or partition.wanted_isr() is None:
            return
        if not self._due and not self._asking:
            self._loop.call_soon(self._go_on)
        self._due[place] = partition

    # -- asking

    def _go_on(self) -> None:
        if self._asking:
            return
        asked: dict[Place, tuple[Partition, Leading, int]] = {}
        request = AlterPartitionRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        topics: dict[bytes, TopicData] = {}
        for place, partition in list(islice(self._due.items(), PARTITIONS_MAX)):
            del self._due[place]
            isr, leading = partition.wanted_isr(), partition.leading
            if isr is None or leading is None:
                continue
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = TopicData(topic_id=partition.topic_id)
                request.topics.append(topic)
            topic.partitions.append(self._wish(partition, leading, isr))
            asked[place] = partition, leading, leading.partition_epoch
        if asked:
            self._asking = True
            self._ask(request).on_done(lambda promise: self._answered(asked, promise))
        elif self._due:
            self._loop.call_soon(self._go_on)

    def _wish(self, partition: Partition, leading: Leading, isr: tuple[int, ...]) -> PartitionData:
        log.info("%s-%d: the ISR is %s, and is to be %s", partition.topic, partition.index, leading.isr, isr)
        own = self._broker_epoch()
        return PartitionData(
            partition_index=partition.index,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=id, broker_epoch=own if id == self._node_id else epoch)
                for id, epoch in leading.ask(isr)
            ],
            partition_epoch=leading.partition_epoch,
        )

    def _answered(self, asked: dict[Place, tuple[Partition, Leading, int]], promise: Promise[Any]) -> None:
        self._asking = False
        error = promise.error
        if error is None and promise.result().error_code:
            error = KafkaError(error_code(promise.result().error_code))
        if error is not None and not self._refused:
            log.warning("the controller doesn't say what the in-sync replicas are: %s; it is asked again", error)
        self._refused = error is not None
        results = (
            {}
            if error is not None
            else {
                (topic.topic_id, result.partition_index): result
                for topic in promise.result().topics
                for result in topic.partitions
            }
        )
        again: dict[Place, Partition] = {}
        for place, (partition, leading, partition_epoch) in asked.items():
            result = results.get(place)
            if partition.leading is not leading:
                continue  # another leader epoch, which knows better
            code = ErrorCode.REQUEST_TIMED_OUT if result is None else result.error_code
            if result is not None and code == ErrorCode.NONE:
                if result.leader_epoch == partition.leader_epoch:
                    leading.answered(tuple(result.isr), result.partition_epoch)
            elif leading.partition_epoch == partition_epoch:
                leading.refused() if code in NOT_DONE else leading.unanswered()
                again[place] = partition
                self._paused.add(place)
            partition.isr_settled()
        if again:
            self._loop.call_later(AGAIN_S, self._look_again, again)
        if self._due:
            self._loop.call_soon(self._go_on)

    def _look_again(self, again: dict[Place, Partition]) -> None:
        self._paused.difference_update(again)
        for partition in again.values():
            self.look(partition)
