"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664).

v1 filters by how long a transaction has been open (KIP-994); v2 by a pattern of the id, which is RE2 (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.txn.listing import listed, unknown_statuses, wanted
from tidelog.coordinator.txn.state import NAMES
from tidelog.env.slices import Steps, mapped
from tidelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.coordinator.txn.state import Transaction


def handle(context: Context, request: ListTransactionsRequest) -> Steps[ListTransactionsResponse]:
    filters = wanted(
        request.state_filters, request.producer_id_filters, request.duration_filter, request.transactional_id_pattern
    )
    yield
    services, env = context.services, context.services.env
    transactions = yield from listed(services.transactions.shards, filters, env.clock.now_ms(), env.loop.run_blocking)
    return ListTransactionsResponse(
        unknown_state_filters=unknown_statuses(request.state_filters),
        transaction_states=(yield from mapped(_transaction_state, transactions)),
    )


def _transaction_state(transaction: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=NAMES[transaction.status],
    )
