"""ListTransactions (key 66): the transactional ids that a broker coordinates.

v1 filters by duration (KIP-994); v2 by a pattern of the id.
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, wire


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[str] = wire(factory=list)
    producer_id_filters: list[i64] = wire(factory=list)
    duration_filter: i64 = wire("1+", default=-1)
    transactional_id_pattern: str | None = wire("2+", default=None)


@struct
class TransactionState:
    transactional_id: str = ""
    producer_id: i64 = 0
    transaction_state: str = ""


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    unknown_state_filters: list[str] = wire(factory=list)
    transaction_states: list[TransactionState] = wire(factory=list)
