"""OffsetFetch (key 9): where a group goes on.

v2 all topics (null) and an error for the whole group; v5 leader epochs; v6 flexible; v7 require-stable (KIP-447); v8
many groups; v9 member epochs of KIP-848; v10 names topics by id.
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class OffsetFetchRequestTopic:
    name: str = ""
    partition_indexes: list[i32] = wire(factory=list)


@struct
class OffsetFetchRequestTopics:
    name: str = wire("8-9", default="", ignorable=True)
    topic_id: uuid = wire("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[i32] = wire(factory=list)


@struct
class OffsetFetchRequestGroup:
    group_id: str = ""
    member_id: str | None = wire("9+", default=None, ignorable=True)
    member_epoch: i32 = wire("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = wire(factory=list)


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = wire("1-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = wire("1-7", factory=list, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = wire("8+", factory=list)
    require_stable: bool = wire("7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: i32 = 0
    committed_offset: i64 = 0
    committed_leader_epoch: i32 = wire("5-7", default=-1, ignorable=True)
    metadata: str | None = ""
    error_code: i16 = 0


@struct
class OffsetFetchResponseTopic:
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = wire(factory=list)


@struct
class OffsetFetchResponsePartitions:
    partition_index: i32 = 0
    committed_offset: i64 = 0
    committed_leader_epoch: i32 = -1
    metadata: str | None = ""
    error_code: i16 = 0


@struct
class OffsetFetchResponseTopics:
    name: str = wire("8-9", default="", ignorable=True)
    topic_id: uuid = wire("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = wire(factory=list)


@struct
class OffsetFetchResponseGroup:
    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = wire(factory=list)
    error_code: i16 = 0


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: i32 = wire("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = wire("1-7", factory=list)
    error_code: i16 = wire("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = wire("8+", factory=list)
