"""Transactions from outside a client library: begun by one process, ended by another, looked for by a third.

What is here speaks the second version of transactions (KIP-890): writing joins the transaction by itself, and each end
raises the producer's epoch. `two_phase` transactions have no timeout: only an end, or a new owner of the id, ends them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.rpc.cluster import Cluster
from tidelog.rpc.errors import Unsupported
from tidelog.rpc.groups import TRANSACTION, coordinator
from tidelog.rpc.offsets import Place
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

TIMEOUT_MS = 60_000
_TWO_PHASE_VERSION = 6


@dataclass(frozen=True, slots=True)
class Producer:
    """Who writes: an id, in an epoch. Without a transactional id it is only idempotent."""

    transactional_id: str | None
    id: int
    epoch: int


def init_producer(
    cluster: Cluster, transactional_id: str | None, *, two_phase: bool = False, timeout_ms: int = TIMEOUT_MS
) -> Producer:
    """A producer of this id; whoever had it before is fenced, and what it had open is aborted."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, enable2_pc=two_phase
    )

    def once() -> Producer:
        asked = cluster.any() if transactional_id is None else coordinator(cluster, transactional_id, TRANSACTION)
        response = asked.ask(request, InitProducerIdResponse)
        code = ErrorCode(response.error_code)
        if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and two_phase:
            raise Unsupported(
                "the brokers don't allow transactions that another process ends: set "
                "transaction.two.phase.commit.enable=true there, or write with delivery=at-least-once"
            )
        if code != ErrorCode.NONE:
            raise KafkaError(code, f"a producer id for {transactional_id or 'an idempotent producer'}")
        return Producer(transactional_id, response.producer_id, response.producer_epoch)

    if two_phase and cluster.any().version(22) < _TWO_PHASE_VERSION:
        raise Unsupported("the brokers don't know two-phase transactions; write with delivery=at-least-once")
    return cluster.patiently("give a producer id", once)


def end_transaction(cluster: Cluster, producer: Producer, *, commit: bool) -> Producer:
    """Commit or abort what the producer has open; the producer in its next epoch. Repeating it is harmless."""
    assert producer.transactional_id is not None, "only transactions end"
    name = producer.transactional_id
    request = EndTxnRequest(
        transactional_id=name, producer_id=producer.id, producer_epoch=producer.epoch, committed=commit
    )

    def once() -> Producer:
        response = coordinator(cluster, name, TRANSACTION).ask(request, EndTxnResponse)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"{'commit' if commit else 'abort'} transaction {name}")
        if response.producer_id < 0:
            return producer
        return Producer(name, response.producer_id, response.producer_epoch)

    return cluster.patiently(f"end transaction {name}", once)


def open_transactions(cluster: Cluster, prefix: str) -> list[str]:
    """The transactional ids with this prefix that have something open, over all brokers."""
    request = ListTransactionsRequest(state_filters=["Ongoing"])

    def once() -> list[str]:
        found: list[str] = []
        for connection in cluster.every():
            response = connection.ask(request, ListTransactionsResponse, 1)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code), "list the transactions")
            found += [each.transactional_id for each in response.transaction_states]
        return sorted(name for name in found if name.startswith(prefix))

    return cluster.patiently("list the transactions", once)


def commit_offsets_in(
    cluster: Cluster, producer: Producer, group: str, offsets: Mapping[Place, tuple[int, str]]
) -> None:
    """Offsets (with a note each) that count once the producer's transaction is committed."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (name, index), (offset, note) in offsets.items():
        entry = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=note)
        topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name)).partitions.append(entry)
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id or "",
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=list(topics.values()),
    )

    def once() -> None:
        response = coordinator(cluster, group).ask(request, TxnOffsetCommitResponse)
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code:
                    raise KafkaError(ErrorCode(each.error_code), f"commit an offset of group {group} in a transaction")

    cluster.patiently(f"commit offsets of group {group}", once)


def abandon(cluster: Cluster, transactional_ids: Iterable[str]) -> None:
    """Abort whatever these ids have open, and fence whoever writes under them."""
    for name in transactional_ids:
        init_producer(cluster, name, two_phase=True)
