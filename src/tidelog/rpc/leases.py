"""The leases of two-phase transactions: renewed while somebody counts on them, ended when they are prepared.

Only Tidelog's brokers have leases, and a transaction without one needs neither: `Described.leased` tells.
"""

from collections.abc import Iterable

from tidelog.rpc.cluster import Cluster
from tidelog.rpc.transactions import Described, by_coordinator
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.leases import PREPARE, RENEW
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

TOGETHER = 500
"""In one request: a coordinator that is busy with thousands would let others wait."""


def renew(cluster: Cluster, transactions: Iterable[Described]) -> dict[str, ErrorCode]:
    """Their leases begin anew; what was answered for each that is not open any more."""
    return _hold(cluster, transactions, RENEW)


def prepare(cluster: Cluster, transactions: Iterable[Described]) -> dict[str, ErrorCode]:
    """From here on only their owner ends these; what was answered for each that is not open any more."""
    return _hold(cluster, transactions, PREPARE)


def _hold(cluster: Cluster, transactions: Iterable[Described], what: str) -> dict[str, ErrorCode]:
    left = {each.producer.transactional_id or "": each for each in transactions}
    refused: dict[str, ErrorCode] = {}

    def once() -> None:
        for connection, names in by_coordinator(cluster, list(left), str).items():
            for start in range(0, len(names), TOGETHER):
                part = [_asked(left[name], what) for name in names[start : start + TOGETHER]]
                response = connection.ask(AddPartitionsToTxnRequest(transactions=part), AddPartitionsToTxnResponse)
                for result in response.results_by_transaction:
                    [answer] = result.topic_results[0].results_by_partition
                    code = ErrorCode(answer.partition_error_code)
                    if code.retriable:
                        raise KafkaError(code, f"hold the transaction of {result.transactional_id}")
                    if code:
                        refused[result.transactional_id] = code
                    del left[result.transactional_id]

    if left:
        cluster.patiently("hold transactions", once)
    return refused


def _asked(described: Described, what: str) -> AddPartitionsToTxnTransaction:
    producer = described.producer
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id or "",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=what, partitions=[0])],
    )
