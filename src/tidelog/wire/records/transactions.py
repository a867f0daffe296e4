"""Records of `__transaction_state`: one a transactional id."""

from tidelog.wire.codec import i8, i16, i32, i64, message, struct, wire


@message(key=0, versions="0", flexible="none")
class TransactionLogKey:
    transactional_id: str = ""


@struct
class PartitionsSchema:
    topic: str = ""
    partition_ids: list[i32] = wire(factory=list)


@message(key=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: i64 = 0
    previous_producer_id: i64 = wire("1+", default=-1, tag=0)
    next_producer_id: i64 = wire("1+", default=-1, tag=1)
    producer_epoch: i16 = 0
    next_producer_epoch: i16 = wire("1+", default=-1, tag=3)
    transaction_timeout_ms: i32 = 0
    transaction_status: i8 = 0
    transaction_partitions: list[PartitionsSchema] | None = wire(factory=list)
    transaction_last_update_timestamp_ms: i64 = 0
    transaction_start_timestamp_ms: i64 = 0
    client_transaction_version: i16 = wire("1+", default=0, tag=2)
