"""AddPartitionsToTxn (key 24): partitions join a transaction, or are verified to be in it.

All of a transaction's partitions join or none: where one isn't known, the others are OPERATION_NOT_ATTEMPTED.

v2 may answer PRODUCER_FENCED; v3 is flexible; v4 is for brokers: many transactions, verify-only (KIP-890); v5 answers
TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.apis.transactional import answered, as_known_to
from tidelog.coordinator.placement import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.coordinator.txn.decide import Producer
from tidelog.coordinator.txn.state import EPOCH_BUMPS_FROM, TopicPartition
from tidelog.env.promise import Promise, gather
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context

FENCED_FROM = 2
BATCHED_FROM = 4
INTERNAL = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE))


def handle(context: Context, request: AddPartitionsToTxnRequest) -> Promise[AddPartitionsToTxnResponse]:
    if context.version >= BATCHED_FROM:
        results = [_one(context, transaction) for transaction in request.transactions]
        return gather(results).map(
            lambda done: AddPartitionsToTxnResponse(results_by_transaction=[promise.result() for promise in done])
        )
    alone = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return _one(context, alone).map(
        lambda result: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)
    )


def _one(context: Context, asked: AddPartitionsToTxnTransaction) -> Promise[AddPartitionsToTxnResult]:
    transactions = context.services.transactions
    partitions = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
    refused = _unknown(context, partitions)
    if refused:
        codes = {partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in partitions}
        return Promise[AddPartitionsToTxnResult].resolved(_result(asked, codes))

    def same(code: ErrorCode) -> AddPartitionsToTxnResult:
        code = as_known_to(code, knows_fenced=context.version >= FENCED_FROM)
        return _result(asked, dict.fromkeys(partitions, code))

    producer = Producer(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        try:
            return Promise[AddPartitionsToTxnResult].resolved(
                _result(asked, transactions.verify(asked.transactional_id, producer, partitions))
            )
        except KafkaError as error:
            return Promise[AddPartitionsToTxnResult].resolved(same(error.code))
    version = EPOCH_BUMPS_FROM if context.version >= BATCHED_FROM else 0
    promise = transactions.add_partitions(asked.transactional_id, producer, partitions, version)
    return answered(promise, lambda _: same(ErrorCode.NONE), same)


def _unknown(context: Context, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """Partitions that can't join: the broker's own, which clients don't write to, and those that aren't there."""
    image = context.services.metadata.image
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic, index in partitions:
        if topic in INTERNAL and context.version < BATCHED_FROM:
            refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(topic, index) is None:
            refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _result(
    asked: AddPartitionsToTxnTransaction, codes: Mapping[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=codes[topic.name, index]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )
