"""AlterPartitionReassignments (key 45): move partitions between brokers, or stop moving them (KIP-455).

Flexible from the first version. Null replicas cancel. v1 may forbid that the replication factor changes (KIP-860).
"""

from tidelog.wire.codec import i16, i32, message, struct, wire


@struct
class ReassignablePartition:
    partition_index: i32 = 0
    replicas: list[i32] | None = None


@struct
class ReassignableTopic:
    name: str = ""
    partitions: list[ReassignablePartition] = wire(factory=list)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: i32 = 60000
    allow_replication_factor_change: bool = wire("1+", default=True)
    topics: list[ReassignableTopic] = wire(factory=list)


@struct
class ReassignablePartitionResponse:
    partition_index: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""


@struct
class ReassignableTopicResponse:
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = wire(factory=list)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: i32 = 0
    allow_replication_factor_change: bool = wire("1+", default=True, ignorable=True)
    error_code: i16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = wire(factory=list)
