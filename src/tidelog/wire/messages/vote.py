"""Vote (key 52): ask a voter for its vote, or whether it would give it (KIP-595).

v1 names both by their directories and tells where the leader listens (KIP-853); v2 pre-votes (KIP-996).
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, u16, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class RequestPartitionData:
    partition_index: i32 = 0
    replica_epoch: i32 = 0
    replica_id: i32 = 0
    replica_directory_id: uuid = wire("1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: uuid = wire("1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: i32 = 0
    last_offset: i64 = 0
    pre_vote: bool = wire("2+", default=False)


@struct
class RequestTopicData:
    topic_name: str = ""
    partitions: list[RequestPartitionData] = wire(factory=list)


@message(key=52, versions="0-2", flexible="0+")
class VoteRequest:
    cluster_id: str | None = None
    voter_id: i32 = wire("1+", default=-1, ignorable=True)
    topics: list[RequestTopicData] = wire(factory=list)


@struct
class ResponsePartitionData:
    partition_index: i32 = 0
    error_code: i16 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = 0
    vote_granted: bool = False


@struct
class ResponseTopicData:
    topic_name: str = ""
    partitions: list[ResponsePartitionData] = wire(factory=list)


@struct
class NodeEndpoint:
    node_id: i32 = 0
    host: str = ""
    port: u16 = 0


@message(key=52, versions="0-2", flexible="0+")
class VoteResponse:
    error_code: i16 = 0
    topics: list[ResponseTopicData] = wire(factory=list)
    node_endpoints: list[NodeEndpoint] = wire("1+", factory=list, tag=0)
