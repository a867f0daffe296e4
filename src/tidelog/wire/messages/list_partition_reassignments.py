"""ListPartitionReassignments (key 46): partitions that are moving between brokers (KIP-455).

Flexible from the first version. Null topics mean all.
"""

from tidelog.wire.codec import i16, i32, message, struct, wire


@struct
class ListPartitionReassignmentsTopics:
    name: str = ""
    partition_indexes: list[i32] = wire(factory=list)


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: i32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


@struct
class OngoingPartitionReassignment:
    partition_index: i32 = 0
    replicas: list[i32] = wire(factory=list)
    adding_replicas: list[i32] = wire(factory=list)
    removing_replicas: list[i32] = wire(factory=list)


@struct
class OngoingTopicReassignment:
    name: str = ""
    partitions: list[OngoingPartitionReassignment] = wire(factory=list)


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = wire(factory=list)
