"""DeleteRecords (key 21): move the start of partitions forward.

An offset of -1 means the high watermark. v2 flexible.
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, wire


@struct
class DeleteRecordsPartition:
    partition_index: i32 = 0
    offset: i64 = 0


@struct
class DeleteRecordsTopic:
    name: str = ""
    partitions: list[DeleteRecordsPartition] = wire(factory=list)


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = wire(factory=list)
    timeout_ms: i32 = 0


@struct
class DeleteRecordsPartitionResult:
    partition_index: i32 = 0
    low_watermark: i64 = 0
    error_code: i16 = 0


@struct
class DeleteRecordsTopicResult:
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = wire(factory=list)


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: i32 = 0
    topics: list[DeleteRecordsTopicResult] = wire(factory=list)
