"""InitProducerId (key 22): an id and epoch for an idempotent or transactional producer.

v2 flexible; v3 carries the current id and epoch, to bump it (KIP-360); v4 may answer PRODUCER_FENCED; v6 two-phase
commit (KIP-939), which Kafka 4.3 calls unstable.
"""

from tidelog.wire.codec import i16, i32, i64, message, wire


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = ""
    transaction_timeout_ms: i32 = 0
    producer_id: i64 = wire("3+", default=-1)
    producer_epoch: i16 = wire("3+", default=-1)
    enable2_pc: bool = wire("6+", default=False)
    keep_prepared_txn: bool = wire("6+", default=False)


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    producer_id: i64 = -1
    producer_epoch: i16 = 0
    ongoing_txn_producer_id: i64 = wire("6+", default=-1)
    ongoing_txn_producer_epoch: i16 = wire("6+", default=-1)
