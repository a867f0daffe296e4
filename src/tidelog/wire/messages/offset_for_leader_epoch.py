"""OffsetForLeaderEpoch (key 23): where a leader epoch ends; replicas and consumers find by it where they diverge.

v2 fencing by the current leader epoch; v3 names the replica; v4 flexible.
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, wire


@struct
class OffsetForLeaderPartition:
    partition: i32 = 0
    current_leader_epoch: i32 = -1
    leader_epoch: i32 = 0


@struct
class OffsetForLeaderTopic:
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = wire(factory=list)


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: i32 = wire("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = wire(factory=list)


@struct
class EpochEndOffset:
    error_code: i16 = 0
    partition: i32 = 0
    leader_epoch: i32 = -1
    end_offset: i64 = -1


@struct
class OffsetForLeaderTopicResult:
    topic: str = ""
    partitions: list[EpochEndOffset] = wire(factory=list)


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: i32 = 0
    topics: list[OffsetForLeaderTopicResult] = wire(factory=list)
