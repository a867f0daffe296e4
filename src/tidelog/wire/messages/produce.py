"""Produce (key 0): append record batches.

v5 tells the log start; v7 allows zstd; v8 names the records that were refused (KIP-467); v9 flexible; v10 hints at
the new leader (KIP-951); v12 joins the transaction by itself (KIP-890); v13 names topics by id (KIP-516).
"""

from tidelog.wire.codec import Records, i16, i32, i64, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class PartitionProduceData:
    index: i32 = 0
    records: Records | None = None


@struct
class TopicProduceData:
    name: str = wire("3-12", default="", ignorable=True)
    topic_id: uuid = wire("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = wire(factory=list)


@message(key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = None
    acks: i16 = 0
    timeout_ms: i32 = 0
    topic_data: list[TopicProduceData] = wire(factory=list)


@struct
class BatchIndexAndErrorMessage:
    batch_index: i32 = 0
    batch_index_error_message: str | None = None


@struct
class LeaderIdAndEpoch:
    leader_id: i32 = -1
    leader_epoch: i32 = -1


@struct
class PartitionProduceResponse:
    index: i32 = 0
    error_code: i16 = 0
    base_offset: i64 = 0
    log_append_time_ms: i64 = -1
    log_start_offset: i64 = wire("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = wire("8+", factory=list, ignorable=True)
    error_message: str | None = wire("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire("10+", factory=LeaderIdAndEpoch, tag=0)


@struct
class TopicProduceResponse:
    name: str = wire("3-12", default="", ignorable=True)
    topic_id: uuid = wire("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = wire(factory=list)


@struct
class NodeEndpoint:
    node_id: i32 = 0
    host: str = ""
    port: i32 = 0
    rack: str | None = None


@message(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = wire(factory=list)
    throttle_time_ms: i32 = 0
    node_endpoints: list[NodeEndpoint] = wire("10+", factory=list, tag=0)
