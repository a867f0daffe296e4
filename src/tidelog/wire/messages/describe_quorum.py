"""DescribeQuorum (key 55): the voters and observers of the metadata log (KIP-595).

v1 times of the last fetch and of having caught up (KIP-836); v2 nodes, messages and directory ids (KIP-853).
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, u16, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class RequestPartitionData:
    partition_index: i32 = 0


@struct
class RequestTopicData:
    topic_name: str = ""
    partitions: list[RequestPartitionData] = wire(factory=list)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[RequestTopicData] = wire(factory=list)


@struct
class ReplicaState:
    replica_id: i32 = 0
    replica_directory_id: uuid = wire("2+", default=ZERO_UUID)
    log_end_offset: i64 = 0
    last_fetch_timestamp: i64 = wire("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: i64 = wire("1+", default=-1, ignorable=True)


@struct
class ResponsePartitionData:
    partition_index: i32 = 0
    error_code: i16 = 0
    error_message: str | None = wire("2+", default="", ignorable=True)
    leader_id: i32 = 0
    leader_epoch: i32 = 0
    high_watermark: i64 = 0
    current_voters: list[ReplicaState] = wire(factory=list)
    observers: list[ReplicaState] = wire(factory=list)


@struct
class ResponseTopicData:
    topic_name: str = ""
    partitions: list[ResponsePartitionData] = wire(factory=list)


@struct
class Listener:
    name: str = ""
    host: str = ""
    port: u16 = 0


@struct
class Node:
    node_id: i32 = 0
    listeners: list[Listener] = wire(factory=list)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: i16 = 0
    error_message: str | None = wire("2+", default="", ignorable=True)
    topics: list[ResponseTopicData] = wire(factory=list)
    nodes: list[Node] = wire("2+", factory=list)
