"""AlterPartition (key 56): a leader asks for another ISR.

v2 names topics by id, v3 members with their broker epochs (KIP-903).
"""

from tidelog.wire.codec import i8, i16, i32, i64, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class BrokerState:
    broker_id: i32 = wire("3+", default=0)
    broker_epoch: i64 = wire("3+", default=-1)


@struct
class PartitionData:
    partition_index: i32 = 0
    leader_epoch: i32 = 0
    new_isr: list[i32] = wire("0-2", factory=list)
    new_isr_with_epochs: list[BrokerState] = wire("3+", factory=list)
    leader_recovery_state: i8 = wire("1+", default=0)
    partition_epoch: i32 = 0


@struct
class TopicData:
    topic_id: uuid = wire("2+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = wire(factory=list)


@message(key=56, versions="2-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: i32 = 0
    broker_epoch: i64 = -1
    topics: list[TopicData] = wire(factory=list)


@struct
class PartitionResult:
    partition_index: i32 = 0
    error_code: i16 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = 0
    isr: list[i32] = wire(factory=list)
    leader_recovery_state: i8 = wire("1+", default=0, ignorable=True)
    partition_epoch: i32 = 0


@struct
class TopicResult:
    topic_id: uuid = wire("2+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionResult] = wire(factory=list)


@message(key=56, versions="2-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    topics: list[TopicResult] = wire(factory=list)
