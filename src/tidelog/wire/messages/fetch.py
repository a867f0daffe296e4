"""Fetch (key 1): read record batches; consumers and followers use it alike.

v4 isolation level and aborted transactions; v5 log start; v7 incremental sessions (KIP-227); v9 leader epoch fencing
(KIP-320); v10 allows zstd; v11 racks and preferred read replicas (KIP-392); v12 flexible, last fetched epoch and
diverging epochs (KIP-595); v13 names topics by id (KIP-516); v15 replica state with its broker epoch (KIP-903); v16
hints at the new leader (KIP-951); v17 directory ids (KIP-853); v18 the follower tells its high watermark (KIP-1166).
"""

from tidelog.wire.codec import SentRecords, i8, i16, i32, i64, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class ReplicaState:
    replica_id: i32 = -1
    replica_epoch: i64 = -1


@struct
class FetchPartition:
    partition: i32 = 0
    current_leader_epoch: i32 = wire("9+", default=-1, ignorable=True)
    fetch_offset: i64 = 0
    last_fetched_epoch: i32 = wire("12+", default=-1)
    log_start_offset: i64 = wire("5+", default=-1, ignorable=True)
    partition_max_bytes: i32 = 0
    replica_directory_id: uuid = wire("17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: i64 = wire("18+", default=9223372036854775807, tag=1, ignorable=True)


@struct
class FetchTopic:
    topic: str = wire("4-12", default="", ignorable=True)
    topic_id: uuid = wire("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = wire(factory=list)


@struct
class ForgottenTopic:
    topic: str = wire("7-12", default="", ignorable=True)
    topic_id: uuid = wire("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[i32] = wire(factory=list)


@message(key=1, versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = wire("12+", default=None, tag=0, ignorable=True)
    replica_id: i32 = wire("4-14", default=-1)
    replica_state: ReplicaState = wire("15+", factory=ReplicaState, tag=1)
    max_wait_ms: i32 = 0
    min_bytes: i32 = 0
    max_bytes: i32 = 2147483647
    isolation_level: i8 = 0
    session_id: i32 = wire("7+", default=0, ignorable=True)
    session_epoch: i32 = wire("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = wire(factory=list)
    forgotten_topics_data: list[ForgottenTopic] = wire("7+", factory=list)
    rack_id: str = wire("11+", default="", ignorable=True)


@struct
class EpochEndOffset:
    epoch: i32 = -1
    end_offset: i64 = -1


@struct
class LeaderIdAndEpoch:
    leader_id: i32 = -1
    leader_epoch: i32 = -1


@struct
class SnapshotId:
    end_offset: i64 = -1
    epoch: i32 = -1


@struct
class AbortedTransaction:
    producer_id: i64 = 0
    first_offset: i64 = 0


@struct
class PartitionData:
    partition_index: i32 = 0
    error_code: i16 = 0
    high_watermark: i64 = 0
    last_stable_offset: i64 = -1
    log_start_offset: i64 = wire("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire("12+", factory=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = wire("12+", factory=LeaderIdAndEpoch, tag=1)
    snapshot_id: SnapshotId = wire("12+", factory=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = wire(factory=list)
    preferred_read_replica: i32 = wire("11+", default=-1)
    records: SentRecords | None = None


@struct
class FetchableTopicResponse:
    topic: str = wire("4-12", default="", ignorable=True)
    topic_id: uuid = wire("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = wire(factory=list)


@struct
class NodeEndpoint:
    node_id: i32 = 0
    host: str = ""
    port: i32 = 0
    rack: str | None = None


@message(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = wire("7+", default=0, ignorable=True)
    session_id: i32 = wire("7+", default=0)
    responses: list[FetchableTopicResponse] = wire(factory=list)
    node_endpoints: list[NodeEndpoint] = wire("16+", factory=list, tag=0)
