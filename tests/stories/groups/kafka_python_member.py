"""A member through kafka-python: the classic protocol in pure Python."""

import time
from collections.abc import Iterable
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError, KafkaError, RebalanceInProgressError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPythonPartition

import kafka
from tests.stories.groups.diary import Diary, Options
from tidelog.wire.topic_partition import TopicPartition

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
BATCH = 50
POLL_MS = 300


def places(partitions: Iterable[Any]) -> list[TopicPartition]:
    return [(each.topic, each.partition) for each in partitions]


class Member(kafka.ConsumerRebalanceListener):
    def __init__(self, options: Options) -> None:
        self.options = options
        self.diary = Diary()
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            group_instance_id=options.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[ASSIGNORS[options.assignor]],
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=options.heartbeat_ms,
            max_poll_interval_ms=options.max_poll_ms,
            metadata_max_age_ms=options.metadata_ms,
            request_timeout_ms=max(5000, options.max_poll_ms + 1000),
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
        )

    def run(self) -> None:
        pattern = self.options.topic.startswith("^")
        if pattern:
            self.consumer.subscribe(pattern=self.options.topic, listener=self)
        else:
            self.consumer.subscribe([self.options.topic], listener=self)
        self.diary.tell("subscribed")
        while self.diary.order()[:1] != ["leave"]:
            for batch in self.consumer.poll(POLL_MS, max_records=BATCH).values():
                for record in batch:
                    self.diary.record(record.topic, record.partition, record.offset, self.options.work_ms)
            self._commit(self.diary.pending)
        self.consumer.close(autocommit=False)
        self.diary.tell("left")

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.diary.assigned(places(assigned))

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        mine = set(places(revoked))
        self._commit({place: offset for place, offset in self.diary.pending.items() if place in mine})
        self.diary.revoked(mine)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self.diary.revoked(places(lost), "lost")

    def _commit(self, pending: dict[TopicPartition, int]) -> None:
        if not pending:
            return
        offsets, began = dict(pending), time.monotonic()
        asked = {KafkaPythonPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        try:
            self.consumer.commit(asked)
        except KafkaError as error:
            again = isinstance(error, RebalanceInProgressError) or not isinstance(error, CommitFailedError)
            self.diary.refused(offsets, began, type(error).__name__, again=again)
            return
        self.diary.committed(offsets, began)
