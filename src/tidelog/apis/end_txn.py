"""EndTxn (key 26): commit or abort a transaction.

Answered when the decision can't be lost any more; the markers are written after that. It may come from any process
that knows the transactional id, the producer id and the epoch. Asked again, it gives the same answer, and the opposite
of what was decided gives INVALID_TXN_STATE: docs/transactions.md says how to tell committed, aborted and not yet apart.

v2 may answer PRODUCER_FENCED; v3 is flexible; v4 answers TRANSACTION_ABORTABLE; v5 raises the epoch with each
transaction, and tells it (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.transactional import answered, as_known_to
from tidelog.coordinator.txn.decide import Producer
from tidelog.coordinator.txn.state import EPOCH_BUMPS_FROM
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise

FENCED_FROM = 2
RAISES_EPOCH_FROM = 5


def handle(context: Context, request: EndTxnRequest) -> Promise[EndTxnResponse]:
    promise = context.services.transactions.end(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        request.committed,
        EPOCH_BUMPS_FROM if context.version >= RAISES_EPOCH_FROM else 0,
    )
    return answered(
        promise,
        lambda after: EndTxnResponse(producer_id=after.id, producer_epoch=after.epoch),
        lambda code: EndTxnResponse(error_code=as_known_to(code, knows_fenced=context.version >= FENCED_FROM)),
    )
