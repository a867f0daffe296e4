"""Between a transactional id's state and its records: the one way in which the state changes, live and after a load."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.txn.state import Status, Transaction, TransactionsState
from tidelog.machine.decision import Decision
from tidelog.machine.machine import Position
from tidelog.wire.records.transactions import PartitionsSchema, TransactionLogKey, TransactionLogValue

T = TypeVar("T")

TAGGED_FROM = 1
"""The transaction version from which records have tagged fields."""


def fold(state: TransactionsState, entries: Sequence[Any], position: Position) -> TransactionsState:
    """The state after some records. What isn't one of a transactional id changes nothing."""
    transactions = state.transactions
    for entry in entries:
        if not isinstance(entry, Entry) or not isinstance(entry.key, TransactionLogKey):
            continue
        transactional_id = entry.key.transactional_id
        if entry.value is not None:
            transactions = transactions.set(transactional_id, read(transactional_id, entry.value))
        elif transactional_id in transactions:
            transactions = transactions.delete(transactional_id)
    return state if transactions is state.transactions else TransactionsState(transactions)


def read(transactional_id: str, value: TransactionLogValue) -> Transaction:
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.previous_producer_id,
        value.next_producer_id,
        value.transaction_timeout_ms,
        Status(value.transaction_status),
        frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.client_transaction_version,
    )


def record(transaction: Transaction) -> Entry:
    """The record that says so. An id without a transaction has null for its partitions, as Kafka writes it."""
    partitions: list[PartitionsSchema] | None = None
    if transaction.status != Status.EMPTY:
        by_topic: dict[str, list[int]] = {}
        for topic, index in transaction.partitions:
            by_topic.setdefault(topic, []).append(index)
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=sorted(by_topic[topic])) for topic in sorted(by_topic)
        ]
    return Entry(
        TransactionLogKey(transactional_id=transaction.transactional_id),
        TransactionLogValue(
            producer_id=transaction.producer_id,
            previous_producer_id=transaction.previous_producer_id,
            next_producer_id=transaction.next_producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_status=transaction.status,
            transaction_partitions=partitions,
            transaction_last_update_timestamp_ms=transaction.updated_ms,
            transaction_start_timestamp_ms=transaction.start_ms,
            client_transaction_version=transaction.version,
        ),
    )


def tombstone(transactional_id: str) -> Entry:
    return Entry(TransactionLogKey(transactional_id=transactional_id), None)


def in_version(decided: Decision[Entry, T], level: int) -> Decision[Entry, T]:
    """The decision in records that a cluster at this level of `transaction.version` can read."""
    if level >= TAGGED_FROM:
        return decided
    entries, answer = decided
    plain = {"previous_producer_id": -1, "next_producer_id": -1, "client_transaction_version": 0}
    return Decision(
        [
            entry if entry.value is None else entry._replace(value=replace(entry.value, **plain), version=0)
            for entry in entries
        ],
        answer,
    )
