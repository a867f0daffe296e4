"""Transactions from outside a client library: begun by one process, ended by another, looked for by a third.

What is here speaks the second version of transactions (KIP-890): writing joins the transaction by itself, and each end
raises the producer's epoch. `two_phase` transactions have no timeout: only an end, a new owner of the id, or the end of
a lease ends them, where the brokers have leases (leases.py).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tidelog.rpc.cluster import Cluster
from tidelog.rpc.connection import Connection
from tidelog.rpc.errors import Unsupported
from tidelog.rpc.groups import TRANSACTION, coordinator
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.leases import LEASED_MS, PREPARED_MS
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.wire.topic_partition import TopicPartition

T = TypeVar("T")

TIMEOUT_MS = 60_000
FORGOTTEN = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
"""It ended so long ago that the coordinator knows it no more: what is open is never forgotten."""
ENDED = (*FORGOTTEN, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
"""What an end is answered where somebody has ended the transaction before, or the id is in a later one."""
_TWO_PHASE_VERSION = 6
_AT_REST = ("Empty", "CompleteCommit", "CompleteAbort")


@dataclass(frozen=True, slots=True)
class Producer:
    """Who writes: an id, in an epoch. Without a transactional id it is only idempotent."""

    transactional_id: str | None
    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Described:
    """A transactional id as its coordinator knows it; the producer is the one that may write now."""

    producer: Producer
    state: str
    timeout_ms: int
    started_ms: int = -1
    places: tuple[TopicPartition, ...] = ()

    @property
    def at_rest(self) -> bool:
        """Whether nothing is open or being ended: the producer may begin its next transaction."""
        return self.state in _AT_REST

    @property
    def is_open(self) -> bool:
        return self.state == "Ongoing"

    @property
    def two_phase(self) -> bool:
        return self.timeout_ms >= PREPARED_MS

    @property
    def leased(self) -> bool:
        """Whether its coordinator aborts it when nobody renews it; not where it was prepared."""
        return self.timeout_ms == LEASED_MS

    @property
    def prepared(self) -> bool:
        return self.timeout_ms == PREPARED_MS


def init_producer(
    cluster: Cluster, transactional_id: str | None, *, two_phase: bool = False, timeout_ms: int = TIMEOUT_MS
) -> Producer:
    """A producer of this id; whoever had it before is fenced, and what it had open is aborted.

    A `two_phase` one has no timeout; with LEASED_MS for one it has a lease, where brokers have them.
    """
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


def abort_exactly(cluster: Cluster, producers: Iterable[Producer]) -> int:
    """Abort the transactions that these producers have open in just these epochs; how many were ended by this.

    What has ended meanwhile, or goes on in a later epoch, is not touched.
    """
    return _end_exactly(cluster, producers, commit=False)


def commit_exactly(cluster: Cluster, producers: Iterable[Producer]) -> int:
    """Commit what these producers have open in just these epochs; how many were, or had been."""
    return _end_exactly(cluster, producers, commit=True)


def _end_exactly(cluster: Cluster, producers: Iterable[Producer], *, commit: bool) -> int:
    ended = 0
    for producer in producers:
        try:
            end_transaction(cluster, producer, commit=commit)
            ended += 1
        except KafkaError as error:
            if error.code not in ENDED:
                raise
    return ended


def describe(cluster: Cluster, transactional_id: str) -> Described | None:
    """What its coordinator knows of a transactional id; None where that is nothing."""
    return describe_all(cluster, [transactional_id]).get(transactional_id)


def describe_all(cluster: Cluster, transactional_ids: Iterable[str]) -> dict[str, Described]:
    """What coordinators know of transactional ids, by id; one of which nothing is known is left out."""
    names = list(transactional_ids)
    by_name: dict[str, Described] = {}

    def once() -> None:
        for connection, part in by_coordinator(cluster, (each for each in names if each not in by_name), str).items():
            request = DescribeTransactionsRequest(transactional_ids=part)
            for state in connection.ask(request, DescribeTransactionsResponse).transaction_states:
                if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue
                if state.error_code:
                    raise KafkaError(ErrorCode(state.error_code), f"describe transactional id {state.transactional_id}")
                by_name[state.transactional_id] = Described(
                    Producer(state.transactional_id, state.producer_id, state.producer_epoch),
                    state.transaction_state,
                    state.transaction_timeout_ms,
                    state.transaction_start_time_ms,
                    tuple((topic.topic, index) for topic in state.topics for index in topic.partitions),
                )

    cluster.patiently(f"describe transactional ids ({', '.join(names[:3])})", once)
    return by_name


def by_coordinator(cluster: Cluster, things: Iterable[T], name: Callable[[T], str]) -> dict[Connection, list[T]]:
    """Grouped by the coordinator of the transactional id of each."""
    grouped: dict[Connection, list[T]] = {}
    for each in things:
        grouped.setdefault(coordinator(cluster, name(each), TRANSACTION), []).append(each)
    return grouped


def open_transactions(cluster: Cluster, wanted: Callable[[str], bool]) -> list[Producer]:
    """The producers of wanted transactional ids that have something open, over all brokers, in their present epochs."""
    return [each.producer for each in describe_open(cluster, wanted)]


def describe_open(cluster: Cluster, wanted: Callable[[str], bool]) -> list[Described]:
    """The wanted transactional ids that have something open, over all brokers."""
    request = ListTransactionsRequest(state_filters=["Ongoing"])

    def once() -> list[str]:
        listed: list[str] = []
        for connection in cluster.every():
            response = connection.ask(request, ListTransactionsResponse, 1)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code), "list the transactions")
            listed += [each.transactional_id for each in response.transaction_states if wanted(each.transactional_id)]
        return sorted(listed)

    described = describe_all(cluster, cluster.patiently("list the transactions", once))
    return [each for each in described.values() if each.is_open]


def commit_offsets_in(
    cluster: Cluster, producer: Producer, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]
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
