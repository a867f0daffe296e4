"""EndTxn (key 26): commit or abort a transaction.

v3 flexible; v4 answers TRANSACTION_ABORTABLE; v5 the epoch goes up with each transaction, and is told (KIP-890).
"""

from tidelog.wire.codec import i16, i32, i64, message, wire


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    committed: bool = False


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    producer_id: i64 = wire("5+", default=-1, ignorable=True)
    producer_epoch: i16 = wire("5+", default=-1, ignorable=True)
