"""BeginQuorumEpoch (key 53): a new leader tells the voters that it leads (KIP-595).

v1 flexible; names the voter by its directory, and tells where the leader listens (KIP-853).
"""

from tidelog.wire.codec import i16, i32, message, struct, u16, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class RequestPartitionData:
    partition_index: i32 = 0
    voter_directory_id: uuid = wire("1+", default=ZERO_UUID, ignorable=True)
    leader_id: i32 = 0
    leader_epoch: i32 = 0


@struct
class RequestTopicData:
    topic_name: str = ""
    partitions: list[RequestPartitionData] = wire(factory=list)


@struct
class LeaderEndpoint:
    name: str = ""
    host: str = ""
    port: u16 = 0


@message(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest:
    cluster_id: str | None = None
    voter_id: i32 = wire("1+", default=-1, ignorable=True)
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


@message(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    error_code: i16 = 0
    topics: list[ResponseTopicData] = wire(factory=list)
    node_endpoints: list[NodeEndpoint] = wire("1+", factory=list, tag=0)
