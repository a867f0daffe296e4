"""AlterPartition (key 56): the leader of partitions asks the controller for another ISR.

v2 names topics by id (KIP-841); v3 tells the broker epochs of the new ISR (KIP-903).
"""

from tidelog.wire.codec import i8, i16, i32, i64, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class BrokerState:
    broker_id: i32 = 0
    broker_epoch: i64 = -1


@struct
class RequestPartitionData:
    partition_index: i32 = 0
    leader_epoch: i32 = 0
    new_isr: list[i32] = wire("2", factory=list)
    new_isr_with_epochs: list[BrokerState] = wire("3+", factory=list)
    leader_recovery_state: i8 = 0
    partition_epoch: i32 = 0


@struct
class RequestTopicData:
    topic_id: uuid = ZERO_UUID
    partitions: list[RequestPartitionData] = wire(factory=list)


@message(key=56, versions="2-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: i32 = 0
    broker_epoch: i64 = -1
    topics: list[RequestTopicData] = wire(factory=list)


@struct
class ResponsePartitionData:
    partition_index: i32 = 0
    error_code: i16 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = 0
    isr: list[i32] = wire(factory=list)
    leader_recovery_state: i8 = 0
    partition_epoch: i32 = 0


@struct
class ResponseTopicData:
    topic_id: uuid = ZERO_UUID
    partitions: list[ResponsePartitionData] = wire(factory=list)


@message(key=56, versions="2-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    topics: list[ResponseTopicData] = wire(factory=list)
