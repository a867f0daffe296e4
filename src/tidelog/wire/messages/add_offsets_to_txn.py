"""AddOffsetsToTxn (key 25): a group's partition of the offsets topic joins a transaction.

v3 flexible; v4 answers TRANSACTION_ABORTABLE.
"""

from tidelog.wire.codec import i16, i32, i64, message


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    group_id: str = ""


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
