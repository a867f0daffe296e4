"""InitProducerId (key 22): an id and epoch for an idempotent or transactional producer.

v2 flexible; v3 carries the current id and epoch, to bump it (KIP-360); v4 may answer PRODUCER_FENCED. v6 is unstable
in Kafka 4.3 and not declared.
"""

from tidelog.wire.codec import i16, i32, i64, message, wire


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = ""
    transaction_timeout_ms: i32 = 0
    producer_id: i64 = wire("3+", default=-1)
    producer_epoch: i16 = wire("3+", default=-1)


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    producer_id: i64 = -1
    producer_epoch: i16 = 0
