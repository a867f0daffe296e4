"""OffsetDelete (key 47): forget offsets of topics that the group doesn't subscribe to any more (KIP-496)."""

from tidelog.wire.codec import i16, i32, message, struct, wire


@struct
class OffsetDeleteRequestPartition:
    partition_index: i32 = 0


@struct
class OffsetDeleteRequestTopic:
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = wire(factory=list)


@message(key=47, versions="0", flexible="none")
class OffsetDeleteRequest:
    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = wire(factory=list)


@struct
class OffsetDeleteResponsePartition:
    partition_index: i32 = 0
    error_code: i16 = 0


@struct
class OffsetDeleteResponseTopic:
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = wire(factory=list)


@message(key=47, versions="0", flexible="none")
class OffsetDeleteResponse:
    error_code: i16 = 0
    throttle_time_ms: i32 = 0
    topics: list[OffsetDeleteResponseTopic] = wire(factory=list)
