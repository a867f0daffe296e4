"""Reading the partitions of one fetch, in their order, within its bounds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.apis.fetch.nearest import LEADER
from tidelog.apis.shared.leader_hint import hint_at_leader
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    LeaderIdAndEpoch,
    PartitionData,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.replica.partition import Partition
    from tidelog.replica.replicas import Replicas
    from tidelog.wire.topic_partition import AnyTopicPartition

log = logging.getLogger("tidelog.fetch")

NO_EPOCH = -1
READ_COMMITTED = 1
STORAGE_ERROR_FROM = 6  # older clients take KAFKA_STORAGE_ERROR for fatal: they are told to look for the leader again
HINTS_FROM = 16
NOBODY_KNOWS = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Reading:
    """One look at all partitions. A parked fetch looks again."""

    __slots__ = (
        "_budget",
        "_committed",
        "_names",
        "_nearest",
        "_need_one",
        "_replicas",
        "_version",
        "bytes",
        "missing",
        "urgent",
    )

    def __init__(
        self,
        replicas: Replicas,
        version: int,
        isolation: int,
        max_bytes: int,
        names: dict[bytes, str] | None,
        nearest: Callable[[Partition, int], int] | None = None,
    ) -> None:
        """`nearest`: of a consumer that may read from followers, which replica it had better read from an offset on."""
        self._replicas = replicas
        self._names = names  # of a session: which topic each id was
        self._version = version
        self._nearest = nearest
        self._committed = isolation == READ_COMMITTED
        self._budget = max_bytes
        self._need_one = True  # the first batch is returned even where it is larger than what was asked for
        self.bytes = 0
        self.urgent = False  # an error or a diverging epoch: answered without waiting for more
        self.missing = 0  # partitions that nobody knows: told in time, but no reason not to wait for the others

    def find(self, key: AnyTopicPartition) -> Partition:
        topic, index = key
        if not isinstance(topic, bytes):
            return self._replicas.get(topic, index)
        if self._names is None:
            return self._replicas.by_id(topic, index)
        try:
            partition = self._replicas.by_id(topic, index)
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_ID and topic in self._names:
                # The session knew this topic: it is gone, or there is another one under its name.
                self._replicas.get(self._names[topic], index)
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID) from error
            raise
        self._names[topic] = partition.topic
        return partition

    def is_quiet(self, key: AnyTopicPartition, asked: FetchPartition, last_answer: tuple[int, int]) -> bool:
        """Whether a session has nothing to say of this partition, found cheaply: of thousands most are like that."""
        partition = self._replicas.opened(key)
        return (
            partition is not None
            and asked.fetch_offset == partition.high_watermark == last_answer[0]
            and partition.log.ends.log_start == last_answer[1]
            and (asked.current_leader_epoch == NO_EPOCH or asked.current_leader_epoch == partition.leader_epoch)
            and asked.last_fetched_epoch == NO_EPOCH
            and partition.is_served
        )

    def read(self, key: AnyTopicPartition, asked: FetchPartition) -> PartitionData:
        partition = None
        try:
            partition = self.find(key)
            return self._read(partition, asked)
        except KafkaError as error:
            code = error.code
        except Exception:
            log.exception("reading partition %s-%s failed", *key)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if code in NOBODY_KNOWS:
            self.missing += 1
        else:
            self.urgent = True
        return refused(asked, code, partition, self._version)

    def _read(self, partition: Partition, asked: FetchPartition) -> PartitionData:
        epoch = max(asked.current_leader_epoch, NO_EPOCH)  # to Fetch any negative one is none
        nearest = LEADER
        if self._nearest is None:
            partition.check_leader(epoch)
        else:
            partition.check_replica(epoch)
            nearest = self._nearest(partition, asked.fetch_offset)
        records = log_slice = None
        limit = min(asked.partition_max_bytes, self._budget)
        diverging = None
        if asked.last_fetched_epoch > NO_EPOCH:
            diverging = self._diverging(partition, asked)
        if diverging is None and nearest == LEADER:
            log_slice = partition.read(
                asked.fetch_offset,
                limit,
                committed=self._committed,
                at_least_one=self._need_one,
            )
            if log_slice is not None:
                size = len(log_slice)
                self._need_one = False
                self._budget = max(0, self._budget - size)
                self.bytes += size
                records = log_slice
        answered = PartitionData(
            partition_index=asked.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start,
            aborted_transactions=[] if self._committed else None,
            preferred_read_replica=nearest,
            records=b"" if records is None else records,
        )
        if nearest != LEADER:
            self.urgent = True
        if log_slice is None and limit > 0 and asked.fetch_offset < partition.last_stable_offset:
            answered.aborted_transactions = None  # a batch that is larger than the limit: as in Kafka, none are told
        if diverging is not None:
            answered.diverging_epoch = diverging
            self.urgent = True
        elif self._committed and log_slice is not None:
            answered.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in partition.log.aborted(asked.fetch_offset, log_slice)
            ]
        return answered

    def _diverging(self, partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
        """Where the client's log and ours part, if the epoch it fetched last says that they do (KIP-595)."""
        epoch, end = partition.log.epochs.end_offset_for(asked.last_fetched_epoch, partition.log.log_end)
        if epoch < 0 or end < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
            return EpochEndOffset(epoch=epoch, end_offset=end)
        return None


def refused(asked: FetchPartition, code: int, partition: Partition | None, version: int) -> PartitionData:
    """The answer for a partition that can't be read; `partition`: as far as it was found."""
    if code == ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_FROM:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    answered = PartitionData(
        partition_index=asked.partition,
        error_code=code,
        high_watermark=-1,
        # As in Kafka: empty where no such partition is known, null once there is one.
        aborted_transactions=[] if partition is None and code != ErrorCode.INCONSISTENT_TOPIC_ID else None,
        records=b"",
    )
    if (
        version >= HINTS_FROM
        and partition is not None
        and code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
    ):
        answered.current_leader = hint_at_leader(LeaderIdAndEpoch, partition)
    return answered
