"""Looking at transactions: ListTransactions and DescribeTransactions, on what is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.coordinator.patterns import PatternError, compiled, cost
from tidelog.coordinator.txn.state import NAMES, Status, Transaction
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps, settled
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.coordinator.txn.questions import TransactionShards

STATUSES = {name: status for status, name in NAMES.items()}
NEVER_IN_THE_LOG = frozenset(("Dead", "PrepareEpochFence"))
"""Names that Kafka knows too; no transaction is ever seen in these here."""


MATCHED_HERE = 1_000_000
"""By the measure of `cost`: some milliseconds at the very worst."""


class Wanted(NamedTuple):
    """Which transactions to list; an empty filter lets all pass."""

    statuses: frozenset[Status] | None
    producer_ids: frozenset[int]
    longer_than_ms: int
    expression: Any | None
    """RE2's, of the id."""


def unknown_statuses(names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in STATUSES and name not in NEVER_IN_THE_LOG]


def wanted(names: list[str], producer_ids: list[int], longer_than_ms: int, pattern: str | None) -> Wanted:
    """Raises INVALID_REGULAR_EXPRESSION."""
    statuses = frozenset(STATUSES[name] for name in names if name in STATUSES) if names else None
    try:
        expression = compiled(pattern) if pattern else None
    except PatternError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"the pattern is no regular expression of RE2: {error}"
        ) from None
    return Wanted(statuses, frozenset(producer_ids), longer_than_ms, expression)


def listed(
    shards: TransactionShards, wanted: Wanted, now_ms: int, aside: Callable[[Callable[[], bool]], Promise[bool]]
) -> Steps[list[Transaction]]:
    """Raises COORDINATOR_LOAD_IN_PROGRESS while a partition is being read.

    An id that takes long to match, since it is long itself, is matched by `aside`.
    """
    transactions: list[Transaction] = []
    for shard in shards.all():
        for transaction in shard.state.transactions.values():
            if _passes(transaction, wanted, now_ms) and (yield from _matches(wanted, transaction, aside)):
                transactions.append(transaction)
            yield
    return transactions


def _passes(transaction: Transaction, wanted: Wanted, now_ms: int) -> bool:
    return (
        (wanted.statuses is None or transaction.status in wanted.statuses)
        and (not wanted.producer_ids or transaction.producer_id in wanted.producer_ids)
        and (wanted.longer_than_ms < 0 or now_ms - transaction.start_ms > wanted.longer_than_ms)
    )


def _matches(
    wanted: Wanted, transaction: Transaction, aside: Callable[[Callable[[], bool]], Promise[bool]]
) -> Steps[bool]:
    expression, name = wanted.expression, transaction.transactional_id
    if expression is None:
        return True

    def match() -> bool:
        return expression.fullmatch(name.encode(errors="surrogatepass")) is not None

    return match() if cost(expression, name) <= MATCHED_HERE else (yield from settled(aside(match)))


def described(shards: TransactionShards, transactional_id: str) -> Transaction:
    """Raises INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, and what says that the coordinator is elsewhere."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    transaction = shards.of(transactional_id).state.transactions.get(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return transaction
