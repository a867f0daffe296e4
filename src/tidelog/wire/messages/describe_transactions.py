"""DescribeTransactions (key 65): state, producer and partitions of transactional ids."""

from tidelog.wire.codec import i16, i32, i64, message, struct, wire


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = wire(factory=list)


@struct
class TopicData:
    topic: str = ""
    partitions: list[i32] = wire(factory=list)


@struct
class TransactionState:
    error_code: i16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: i32 = 0
    transaction_start_time_ms: i64 = 0
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    topics: list[TopicData] = wire(factory=list)


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: i32 = 0
    transaction_states: list[TransactionState] = wire(factory=list)
