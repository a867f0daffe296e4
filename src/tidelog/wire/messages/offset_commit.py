"""OffsetCommit (key 8): how far a group has come in each partition.

v2 is the lowest left, with a retention time until v4; v6 leader epochs; v7 static members; v8 flexible; v9 member
epochs of KIP-848 and their errors; v10 names topics by id.
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class OffsetCommitRequestPartition:
    partition_index: i32 = 0
    committed_offset: i64 = 0
    committed_leader_epoch: i32 = wire("6+", default=-1, ignorable=True)
    committed_metadata: str | None = ""


@struct
class OffsetCommitRequestTopic:
    name: str = wire("2-9", default="", ignorable=True)
    topic_id: uuid = wire("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = wire(factory=list)


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = ""
    generation_id_or_member_epoch: i32 = -1
    member_id: str = ""
    group_instance_id: str | None = wire("7+", default=None)
    retention_time_ms: i64 = wire("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = wire(factory=list)


@struct
class OffsetCommitResponsePartition:
    partition_index: i32 = 0
    error_code: i16 = 0


@struct
class OffsetCommitResponseTopic:
    name: str = wire("2-9", default="", ignorable=True)
    topic_id: uuid = wire("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = wire(factory=list)


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: i32 = wire("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = wire(factory=list)
