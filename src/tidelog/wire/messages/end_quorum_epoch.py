"""EndQuorumEpoch (key 54): a leader steps down, and says whom it would have lead next (KIP-595).

v1 flexible; successors by directory, and where the leader listens (KIP-853).
"""

from tidelog.wire.codec import i16, i32, message, struct, u16, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class ReplicaInfo:
    candidate_id: i32 = 0
    candidate_directory_id: uuid = ZERO_UUID


@struct
class RequestPartitionData:
    partition_index: i32 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = 0
    preferred_successors: list[i32] = wire("0", factory=list, ignorable=True)
    preferred_candidates: list[ReplicaInfo] = wire("1+", factory=list, ignorable=True)


@struct
class RequestTopicData:
    topic_name: str = ""
    partitions: list[RequestPartitionData] = wire(factory=list)


@struct
class LeaderEndpoint:
    name: str = ""
    host: str = ""
    port: u16 = 0


@message(key=54, versions="0-1", flexible="1+")
class EndQuorumEpochRequest:
    cluster_id: str | None = None
    topics: list[RequestTopicData] = wire(factory=list)
    leader_endpoints: list[LeaderEndpoint] = wire("1+", factory=list, ignorable=True)


@struct
class ResponsePartitionData:
    partition_index: i32 = 0
    error_code: i16 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = 0


@struct
class ResponseTopicData:
    topic_name: str = ""
    partitions: list[ResponsePartitionData] = wire(factory=list)


@struct
class NodeEndpoint:
    node_id: i32 = 0
    host: str = ""
    port: u16 = 0


@message(key=54, versions="0-1", flexible="1+")
class EndQuorumEpochResponse:
    error_code: i16 = 0
    topics: list[ResponseTopicData] = wire(factory=list)
    node_endpoints: list[NodeEndpoint] = wire("1+", factory=list, tag=0)
