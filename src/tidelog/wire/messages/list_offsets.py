"""ListOffsets (key 2): the offset that belongs to a timestamp, or one of the log's ends.

v2 isolation level; v4 leader epochs; v5 may answer OFFSET_NOT_AVAILABLE; v6 flexible. Special timestamps: -1 end, -2
start, from v7 -3 (greatest timestamp), from v8 -4 (local start), from v9 -5 (last tiered), from v11 -6 (next to
upload).
"""

from tidelog.wire.codec import i8, i16, i32, i64, message, struct, wire


@struct
class ListOffsetsPartition:
    partition_index: i32 = 0
    current_leader_epoch: i32 = wire("4+", default=-1, ignorable=True)
    timestamp: i64 = 0


@struct
class ListOffsetsTopic:
    name: str = ""
    partitions: list[ListOffsetsPartition] = wire(factory=list)


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: i32 = 0
    isolation_level: i8 = wire("2+", default=0)
    topics: list[ListOffsetsTopic] = wire(factory=list)
    timeout_ms: i32 = wire("10+", default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: i32 = 0
    error_code: i16 = 0
    timestamp: i64 = -1
    offset: i64 = -1
    leader_epoch: i32 = wire("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = wire(factory=list)


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: i32 = wire("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = wire(factory=list)
