"""CreateTopics (key 19): create topics, or check whether they could be.

v4 -1 for the default partitions and replication (KIP-464); v5 flexible, tells the topic's configs (KIP-525); v6 may
be throttled; v7 tells the topic id.
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class CreatableReplicaAssignment:
    partition_index: i32 = 0
    broker_ids: list[i32] = wire(factory=list)


@struct
class CreatableTopicConfig:
    name: str = ""
    value: str | None = ""


@struct
class CreatableTopic:
    name: str = ""
    num_partitions: i32 = 0
    replication_factor: i16 = 0
    assignments: list[CreatableReplicaAssignment] = wire(factory=list)
    configs: list[CreatableTopicConfig] = wire(factory=list)


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = wire(factory=list)
    timeout_ms: i32 = 60000
    validate_only: bool = False


@struct
class CreatableTopicConfigs:
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: i8 = -1
    is_sensitive: bool = False


@struct
class CreatableTopicResult:
    name: str = ""
    topic_id: uuid = wire("7+", default=ZERO_UUID, ignorable=True)
    error_code: i16 = 0
    error_message: str | None = ""
    topic_config_error_code: i16 = wire("5+", default=0, tag=0, ignorable=True)
    num_partitions: i32 = wire("5+", default=-1, ignorable=True)
    replication_factor: i16 = wire("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = wire("5+", factory=list, ignorable=True)


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: i32 = 0
    topics: list[CreatableTopicResult] = wire(factory=list)
