"""AddPartitionsToTxn (key 24): partitions join a transaction, or are verified to be in it.

All of a transaction's partitions join or none: where one isn't known, the others are OPERATION_NOT_ATTEMPTED.

v2 may answer PRODUCER_FENCED; v3 is flexible; v4 is for brokers: many transactions, verify-only (KIP-890); v5 answers
TRANSACTION_ABORTABLE.

Two names that no topic can have are about the lease of a two-phase transaction, which Kafka doesn't know: to verify
partition 0 of `tidelog:renew` renews it, of `tidelog:prepare` ends it, since the transaction is prepared (state.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from tidelog.apis.shared.transactional import answered, as_known_to
from tidelog.controller.names import INTERNAL_TOPICS
from tidelog.coordinator.txn.decide import Producer
from tidelog.coordinator.txn.state import EPOCH_BUMPS_FROM
from tidelog.env.promise import Promise
from tidelog.env.slices import CHEAP_A_STEP, Steps, mapped, settled
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.leases import PREPARE, RENEW
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

FENCED_FROM = 2
BATCHED_FROM = 4
TRANSACTIONS_AT_ONCE = 256
"""Transactions that are on their way to the log at once."""
PLACES_A_STEP = 64
HOLDS = {(RENEW, 0): False, (PREPARE, 0): True}
"""What is asked for by a name that no topic can have: whether the transaction is prepared."""

CodeOf: TypeAlias = "Callable[[TopicPartition], ErrorCode]"
"""What is told of each partition."""


def handle(context: Context, request: AddPartitionsToTxnRequest) -> Steps[AddPartitionsToTxnResponse]:
    if context.version >= BATCHED_FROM:
        results: list[AddPartitionsToTxnResult] = []
        for start in range(0, len(request.transactions), TRANSACTIONS_AT_ONCE):
            together = request.transactions[start : start + TRANSACTIONS_AT_ONCE]
            decided: list[Promise[CodeOf]] = []
            for asked in together:
                decided.append((yield from _decide(context, asked)))  # noqa: PERF401
            for asked, promise in zip(together, decided, strict=True):
                results.append((yield from _result(asked, promise)))
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    alone = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    promise = yield from _decide(context, alone)
    result = yield from _result(alone, promise)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)


def _decide(context: Context, asked: AddPartitionsToTxnTransaction) -> Steps[Promise[CodeOf]]:
    """What is told of each partition of one transaction, once that is decided."""
    partitions: list[TopicPartition] = []
    for topic in asked.topics:
        partitions += yield from mapped(partial(_place, topic.name), topic.partitions, CHEAP_A_STEP)
    if asked.verify_only and len(partitions) == 1 and partitions[0] in HOLDS:
        return _held(context, asked, prepare=HOLDS[partitions[0]])
    refused = yield from _unknown(context, partitions)
    if refused:
        return _at_once(lambda place: refused.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED))
    transactions = context.services.transactions
    producer = Producer(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        try:
            codes: dict[TopicPartition, ErrorCode] = {}
            for start in range(0, max(len(partitions), 1), CHEAP_A_STEP):
                some = partitions[start : start + CHEAP_A_STEP]
                codes |= transactions.verify(asked.transactional_id, producer, some)
                yield
        except KafkaError as error:
            return _at_once(_same(context, error.code))
        return _at_once(codes.__getitem__)
    if context.version >= BATCHED_FROM:  # nobody waits for another one's transaction to end: its broker asks again
        promise = transactions.add_partitions(
            asked.transactional_id, producer, partitions, EPOCH_BUMPS_FROM, patience_s=0.0
        )
    else:
        promise = transactions.add_partitions(asked.transactional_id, producer, partitions, 0)
    return answered(promise, lambda _: _same(context, ErrorCode.NONE), partial(_same, context))


def _held(context: Context, asked: AddPartitionsToTxnTransaction, *, prepare: bool) -> Promise[CodeOf]:
    producer = Producer(asked.producer_id, asked.producer_epoch)
    promise = context.services.transactions.hold(asked.transactional_id, producer, prepare=prepare)
    return answered(promise, lambda _: _same(context, ErrorCode.NONE), partial(_same, context))


def _place(topic: str, index: int) -> TopicPartition:
    return topic, index


def _at_once(codes: CodeOf) -> Promise[CodeOf]:
    return Promise[CodeOf].resolved(codes)


def _same(context: Context, code: ErrorCode) -> CodeOf:
    """One code for all partitions."""
    known = as_known_to(code, knows_fenced=context.version >= FENCED_FROM)
    return lambda _: known


def _unknown(context: Context, partitions: list[TopicPartition]) -> Steps[dict[TopicPartition, ErrorCode]]:
    """Partitions that can't join: the broker's own, which clients don't write to, and those that aren't there."""
    image = context.services.metadata.image
    refused: dict[TopicPartition, ErrorCode] = {}
    for place, (topic, index) in enumerate(partitions, 1):
        if topic in INTERNAL_TOPICS and context.version < BATCHED_FROM:
            refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(topic, index) is None:
            refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not place % PLACES_A_STEP:
            yield
    return refused


def _result(asked: AddPartitionsToTxnTransaction, decided: Promise[CodeOf]) -> Steps[AddPartitionsToTxnResult]:
    codes = yield from settled(decided)
    topics: list[AddPartitionsToTxnTopicResult] = []
    for topic in asked.topics:
        results = yield from mapped(partial(_partition, topic.name, codes), topic.partitions, PLACES_A_STEP)
        topics.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results))
    return AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=topics)


def _partition(topic: str, codes: CodeOf, index: int) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes((topic, index)))
