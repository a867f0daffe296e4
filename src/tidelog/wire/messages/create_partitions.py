"""CreatePartitions (key 37): give topics more partitions.

v2 flexible; v3 may be throttled (KIP-599).
"""

from tidelog.wire.codec import i16, i32, message, struct, wire


@struct
class CreatePartitionsAssignment:
    broker_ids: list[i32] = wire(factory=list)


@struct
class CreatePartitionsTopic:
    name: str = ""
    count: i32 = 0
    assignments: list[CreatePartitionsAssignment] | None = wire(factory=list)


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = wire(factory=list)
    timeout_ms: i32 = 0
    validate_only: bool = False


@struct
class CreatePartitionsTopicResult:
    name: str = ""
    error_code: i16 = 0
    error_message: str | None = None


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: i32 = 0
    results: list[CreatePartitionsTopicResult] = wire(factory=list)
