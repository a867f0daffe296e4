"""Metadata (key 3): brokers, topics, partitions and their leaders.

Null topics mean all of them (v0: an empty list does). v1 racks, controller and internal topics; v2 cluster id; v4
asks whether to create; v5 offline replicas; v7 leader epochs; v8 authorised operations; v9 flexible; v10 topic ids;
v12 asks by id; v13 has an error of the whole answer.
"""

from tidelog.wire.codec import i16, i32, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class MetadataRequestTopic:
    topic_id: uuid = wire("10+", default=ZERO_UUID, ignorable=True)
    name: str | None = wire(default="", nullable="10+")


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = wire(factory=list, nullable="1+")
    allow_auto_topic_creation: bool = wire("4+", default=True)
    include_cluster_authorized_operations: bool = wire("8-10", default=False)
    include_topic_authorized_operations: bool = wire("8+", default=False)


@struct
class MetadataResponseBroker:
    node_id: i32 = 0
    host: str = ""
    port: i32 = 0
    rack: str | None = wire("1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: i16 = 0
    partition_index: i32 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = wire("7+", default=-1, ignorable=True)
    replica_nodes: list[i32] = wire(factory=list)
    isr_nodes: list[i32] = wire(factory=list)
    offline_replicas: list[i32] = wire("5+", factory=list, ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: i16 = 0
    name: str | None = wire(default="", nullable="12+")
    topic_id: uuid = wire("10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = wire("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = wire(factory=list)
    topic_authorized_operations: i32 = wire("8+", default=-2147483648)


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: i32 = wire("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = wire(factory=list)
    cluster_id: str | None = wire("2+", default=None, ignorable=True)
    controller_id: i32 = wire("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = wire(factory=list)
    cluster_authorized_operations: i32 = wire("8-10", default=-2147483648)
    error_code: i16 = wire("13+", default=0, ignorable=True)
