"""TxnOffsetCommit (key 28): offsets that count once their transaction is committed.

v2 leader epochs; v3 flexible, with member and generation (KIP-447); v4 answers TRANSACTION_ABORTABLE; v5 joins the
transaction by itself (KIP-890).
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, wire


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: i32 = 0
    committed_offset: i64 = 0
    committed_leader_epoch: i32 = wire("2+", default=-1, ignorable=True)
    committed_metadata: str | None = ""


@struct
class TxnOffsetCommitRequestTopic:
    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = wire(factory=list)


@message(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = ""
    group_id: str = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    generation_id: i32 = wire("3+", default=-1)
    member_id: str = wire("3+", default="")
    group_instance_id: str | None = wire("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = wire(factory=list)


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: i32 = 0
    error_code: i16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = wire(factory=list)


@message(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: i32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = wire(factory=list)
