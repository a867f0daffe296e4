"""ElectLeaders (key 43): elect the preferred leader, or any from v1 on (unclean, KIP-460).

v2 flexible. Null topics mean all partitions.
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, wire


@struct
class TopicPartitions:
    topic: str = ""
    partitions: list[i32] = wire(factory=list)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: i8 = wire("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = wire(factory=list)
    timeout_ms: i32 = 60000


@struct
class PartitionResult:
    partition_id: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""


@struct
class ReplicaElectionResult:
    topic: str = ""
    partition_result: list[PartitionResult] = wire(factory=list)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = wire("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = wire(factory=list)
