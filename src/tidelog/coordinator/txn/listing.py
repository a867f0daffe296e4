"""Looking at transactions: ListTransactions and DescribeTransactions, on what is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.coordinator.txn.state import NAMES, Status, Transaction
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.coordinator.txn.asking import TransactionShards

STATUSES = {name: status for status, name in NAMES.items()}
NEVER_IN_THE_LOG = frozenset(("Dead", "PrepareEpochFence"))
"""Names that Kafka knows too; no transaction is ever seen in these here."""


class Wanted(NamedTuple):
    """Which transactions to list; an empty filter lets all pass."""

    statuses: frozenset[Status] | None
    producer_ids: frozenset[int]
    longer_than_ms: int
    matches: Callable[[str], bool] | None


def unknown_statuses(names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in STATUSES and name not in NEVER_IN_THE_LOG]


def wanted(names: list[str], producer_ids: list[int], longer_than_ms: int, pattern: str | None) -> Wanted:
    """Raises INVALID_REGULAR_EXPRESSION."""
    statuses = frozenset(STATUSES[name] for name in names if name in STATUSES) if names else None
    return Wanted(statuses, frozenset(producer_ids), longer_than_ms, _matcher(pattern) if pattern else None)


def _matcher(pattern: str) -> Callable[[str], bool]:
    """RE2: a pattern comes from whoever asks, and must not hold the loop."""
    re2: Any = import_module("re2")
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no regular expression of RE2: {error}"
        ) from None
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


def listed(shards: TransactionShards, wanted: Wanted, now_ms: int) -> Iterator[Transaction]:
    """Raises COORDINATOR_LOAD_IN_PROGRESS while a partition is being read."""
    for shard in shards.all():
        for transaction in shard.state.transactions.values():
            if _passes(transaction, wanted, now_ms):
                yield transaction


def _passes(transaction: Transaction, wanted: Wanted, now_ms: int) -> bool:
    return (
        (wanted.statuses is None or transaction.status in wanted.statuses)
        and (not wanted.producer_ids or transaction.producer_id in wanted.producer_ids)
        and (wanted.longer_than_ms < 0 or now_ms - transaction.start_ms > wanted.longer_than_ms)
        and (wanted.matches is None or wanted.matches(transaction.transactional_id))
    )


def described(shards: TransactionShards, transactional_id: str) -> Transaction:
    """Raises INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, and what says that the coordinator is elsewhere."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    transaction = shards.of(transactional_id).state.transactions.get(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return transaction
