"""DescribeProducers (key 61): the producers that a partition remembers (KIP-664)."""

from tidelog.wire.codec import i16, i32, i64, message, struct, wire


@struct
class TopicRequest:
    name: str = ""
    partition_indexes: list[i32] = wire(factory=list)


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = wire(factory=list)


@struct
class ProducerState:
    producer_id: i64 = 0
    producer_epoch: i32 = 0
    last_sequence: i32 = -1
    last_timestamp: i64 = -1
    coordinator_epoch: i32 = 0
    current_txn_start_offset: i64 = -1


@struct
class PartitionResponse:
    partition_index: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = wire(factory=list)


@struct
class TopicResponse:
    name: str = ""
    partitions: list[PartitionResponse] = wire(factory=list)


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: i32 = 0
    topics: list[TopicResponse] = wire(factory=list)
