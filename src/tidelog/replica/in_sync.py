"""Followers that copy nothing leave the ISR: the leader asks the controller for that, and acknowledges nothing before.

Brokers of this version don't copy from each other yet, so that is true of every follower, and known without waiting for
`replica.lag.time.max.ms`. Who leads a partition, and has records of it, has the ISR made what it is: this broker alone.
Then the ISR says who has them, `min.insync.replicas` means what it says, and no replica without them is elected. A
partition without records is left as it was made: all replicas have what there is, and any may lead.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.env import Loop
    from tidelog.env.promise import Promise
    from tidelog.replica.partition import Partition

log = logging.getLogger("tidelog.replica")

AGAIN_S = 0.2
"""Until the controller is asked again for those that it refused, for a reason that may pass."""
PARTITIONS_MAX = 1000
"""As many are asked for in one request."""

Place = tuple[bytes, int]


class InSync:
    """The requests for a smaller ISR, one at a time. `ask` asks the active controller; `broker_epoch` is this one's."""

    def __init__(
        self,
        loop: Loop,
        node_id: int,
        ask: Callable[[AlterPartitionRequest], Promise[Any]],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._node_id = node_id
        self._ask = ask
        self._broker_epoch = broker_epoch
        self._wanted: dict[Place, Partition] = {}
        self._asking = False
        self._refused = False

    def look(self, partition: Partition) -> None:
        """It was opened, the controller changed it, or it has more records."""
        place = partition.topic_id, partition.index
        if not self._is_due(partition):
            self._wanted.pop(place, None)
            return
        if not self._wanted and not self._asking:
            self._loop.call_soon(self._go_on)
        self._wanted[place] = partition

    def _is_due(self, partition: Partition) -> bool:
        others, behind = partition.isr != (self._node_id,), partition.log.log_end > partition.high_watermark
        return others and behind and not partition.deleted and partition.is_served

    def _go_on(self) -> None:
        """Those whose change comes by the metadata are taken out by `look`."""
        self._wanted = {place: one for place, one in self._wanted.items() if self._is_due(one)}
        if self._wanted and not self._asking:
            self._asking = True
            self._ask(self._request(list(islice(self._wanted.values(), PARTITIONS_MAX)))).on_done(self._answered)

    def _request(self, partitions: list[Partition]) -> AlterPartitionRequest:
        topics: dict[bytes, TopicData] = {}
        for one in partitions:
            topic = topics.setdefault(one.topic_id, TopicData(topic_id=one.topic_id))
            topic.partitions.append(
                PartitionData(
                    partition_index=one.index,
                    leader_epoch=one.leader_epoch,
                    new_isr_with_epochs=[BrokerState(broker_id=self._node_id, broker_epoch=self._broker_epoch())],
                    partition_epoch=one.image.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _answered(self, promise: Promise[Any]) -> None:
        """What was decided comes by the metadata, too, and counts from then on; until then it is wanted still."""
        self._asking = False
        error = promise.error
        if error is None and promise.result().error_code:
            error = KafkaError(ErrorCode(promise.result().error_code))
        if error is not None and not self._refused:
            log.warning("the controller doesn't take followers that copy nothing out of the ISR yet: %s", error)
        self._refused = error is not None
        if self._wanted:
            self._loop.call_later(AGAIN_S, self._go_on)
