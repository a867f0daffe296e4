"""DescribeTopicPartitions (key 75): partitions of topics, page by page (KIP-966)."""

from tidelog.wire.codec import i16, i32, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class TopicRequest:
    name: str = ""


@struct
class Cursor:
    topic_name: str = ""
    partition_index: i32 = 0


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = wire(factory=list)
    response_partition_limit: i32 = 2000
    cursor: Cursor | None = None


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: i16 = 0
    partition_index: i32 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = -1
    replica_nodes: list[i32] = wire(factory=list)
    isr_nodes: list[i32] = wire(factory=list)
    eligible_leader_replicas: list[i32] | None = None
    last_known_elr: list[i32] | None = None
    offline_replicas: list[i32] = wire(factory=list)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: i16 = 0
    name: str | None = ""
    topic_id: uuid = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire(factory=list)
    topic_authorized_operations: i32 = -2147483648


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: i32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = wire(factory=list)
    next_cursor: Cursor | None = None
