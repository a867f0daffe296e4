"""AddPartitionsToTxn (key 24): partitions join a transaction, or are verified to be in it.

v3 flexible; v4 many transactions in one request, sent by brokers, verify-only (KIP-890); v5 answers
TRANSACTION_ABORTABLE.
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, wire


@struct
class AddPartitionsToTxnTopic:
    name: str = ""
    partitions: list[i32] = wire(factory=list)


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = wire(factory=list)


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = wire("4+", factory=list)
    v3_and_below_transactional_id: str = wire("0-3", default="")
    v3_and_below_producer_id: i64 = wire("0-3", default=0)
    v3_and_below_producer_epoch: i16 = wire("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire("0-3", factory=list)


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: i32 = 0
    partition_error_code: i16 = 0


@struct
class AddPartitionsToTxnTopicResult:
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire(factory=list)


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = wire(factory=list)


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = wire("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire("4+", factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire("0-3", factory=list)
