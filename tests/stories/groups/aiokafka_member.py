"""A member through aiokafka: rebalances go on beside the work, so a lock keeps them apart."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import IllegalStateError, KafkaError, RebalanceInProgressError

from tests.stories.groups.diary import Diary, Options
from tidelog.wire.topic_partition import TopicPartition

BATCH = 50
POLL_MS = 50


def places(partitions: Iterable[Any]) -> list[TopicPartition]:
    return [(each.topic, each.partition) for each in partitions]


class Member(aiokafka.ConsumerRebalanceListener):
    def __init__(self, options: Options) -> None:
        assert options.assignor == "range", "aiokafka has no cooperative assignor"
        self.options = options
        self.diary = Diary()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        options = self.options
        self.lock = asyncio.Lock()
        self.owned: set[TopicPartition] = set()
        self.consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            group_instance_id=options.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=options.heartbeat_ms,
            max_poll_interval_ms=options.max_poll_ms,
            rebalance_timeout_ms=options.max_poll_ms,
            metadata_max_age_ms=options.metadata_ms,
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
        )
        if options.topic.startswith("^"):
            self.consumer.subscribe(pattern=options.topic, listener=self)
        else:
            self.consumer.subscribe([options.topic], listener=self)
        await self.consumer.start()
        self.diary.tell("subscribed")
        while self.diary.order()[:1] != ["leave"]:
            found = await self.consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
            async with self.lock:
                for place, batch in found.items():
                    if (place.topic, place.partition) in self.owned:
                        for record in batch:
                            self.diary.record(record.topic, record.partition, record.offset, options.work_ms)
                await self._commit(self.diary.pending)
        await self.consumer.stop()
        self.diary.tell("left")

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.owned = set(places(assigned))
        self.diary.assigned(self.owned)

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        async with self.lock:
            mine = set(places(revoked))
            await self._commit({place: offset for place, offset in self.diary.pending.items() if place in mine})
            self.owned = set()
            self.diary.revoked(mine)

    async def _commit(self, pending: dict[TopicPartition, int]) -> None:
        if not pending:
            return
        offsets, began = dict(pending), time.monotonic()
        try:
            await self.consumer.commit({aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()})
        except (KafkaError, IllegalStateError) as error:
            again = isinstance(error, RebalanceInProgressError)
            self.diary.refused(offsets, began, type(error).__name__, again=again)
            return
        self.diary.committed(offsets, began)
