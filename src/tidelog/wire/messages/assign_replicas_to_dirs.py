"""AssignReplicasToDirs (key 73): a broker says in which directory its replicas are (KIP-858)."""

from tidelog.wire.codec import i16, i32, i64, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class PartitionData:
    partition_index: i32 = 0


@struct
class TopicData:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = wire(factory=list)


@struct
class DirectoryData:
    id: uuid = ZERO_UUID
    topics: list[TopicData] = wire(factory=list)


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest:
    broker_id: i32 = 0
    broker_epoch: i64 = -1
    directories: list[DirectoryData] = wire(factory=list)


@struct
class PartitionResult:
    partition_index: i32 = 0
    error_code: i16 = 0


@struct
class TopicResult:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionResult] = wire(factory=list)


@struct
class DirectoryResult:
    id: uuid = ZERO_UUID
    topics: list[TopicResult] = wire(factory=list)


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    directories: list[DirectoryResult] = wire(factory=list)
