"""FetchSnapshot (key 59): a piece of a checkpoint of the metadata log, for who is too far behind for the log (KIP-630).

v1 the replica's directory, and where the leader listens (KIP-853).
"""

from tidelog.wire.codec import SentRecords, i16, i32, i64, message, struct, u16, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class SnapshotId:
    end_offset: i64 = 0
    epoch: i32 = 0


@struct
class RequestPartitionSnapshot:
    partition: i32 = 0
    current_leader_epoch: i32 = 0
    snapshot_id: SnapshotId = wire(factory=SnapshotId)
    position: i64 = 0
    replica_directory_id: uuid = wire("1+", default=ZERO_UUID, tag=0, ignorable=True)


@struct
class RequestTopicSnapshot:
    name: str = ""
    partitions: list[RequestPartitionSnapshot] = wire(factory=list)


@message(key=59, versions="0-1", flexible="0+")
class FetchSnapshotRequest:
    cluster_id: str | None = wire(default=None, tag=0)
    replica_id: i32 = -1
    max_bytes: i32 = 2147483647
    topics: list[RequestTopicSnapshot] = wire(factory=list)


@struct
class LeaderIdAndEpoch:
    leader_id: i32 = 0
    leader_epoch: i32 = 0


@struct
class ResponsePartitionSnapshot:
    index: i32 = 0
    error_code: i16 = 0
    snapshot_id: SnapshotId = wire(factory=SnapshotId)
    current_leader: LeaderIdAndEpoch = wire(factory=LeaderIdAndEpoch, tag=0)
    size: i64 = 0
    position: i64 = 0
    unaligned_records: SentRecords = b""


@struct
class ResponseTopicSnapshot:
    name: str = ""
    partitions: list[ResponsePartitionSnapshot] = wire(factory=list)


@struct
class NodeEndpoint:
    node_id: i32 = 0
    host: str = ""
    port: u16 = 0


@message(key=59, versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    topics: list[ResponseTopicSnapshot] = wire(factory=list)
    node_endpoints: list[NodeEndpoint] = wire("1+", factory=list, tag=0)
