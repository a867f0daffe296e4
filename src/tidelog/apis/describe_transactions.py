"""DescribeTransactions (key 65): state, producer and partitions of transactional ids (KIP-664). Only v0."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.txn.listing import described
from tidelog.coordinator.txn.state import NAMES
from tidelog.env.slices import Steps, distinct, mapped
from tidelog.wire.errors import KafkaError
from tidelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context


def handle(context: Context, request: DescribeTransactionsRequest) -> Steps[DescribeTransactionsResponse]:
    asked = yield from distinct(request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=(yield from mapped(partial(_one, context), asked, 1)))


def _one(context: Context, transactional_id: str) -> TransactionState:
    try:
        transaction = described(context.services.transactions.shards, transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=NAMES[transaction.status],
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
