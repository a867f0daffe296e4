"""InitProducerId (key 22): a producer id and epoch, for an idempotent or a transactional producer.

Ids come from blocks that the controller hands out, so that none is ever given twice. An idempotent producer gets a new
one each time, whatever it says it has, as Kafka answers where no transaction is involved. A transactional producer gets
the id of its transactional id, in an epoch that fences whoever had it before, whose open transaction is aborted first.
Where the controller can't hand out a block, the client is told to try again, with the error that Kafka uses for it.

v2 is flexible; v3 carries the producer's current id and epoch (KIP-360); v4 may answer PRODUCER_FENCED; v5 belongs to
transactions (KIP-890); v6 asks for transactions without a timeout, which another process may end (KIP-939). Kafka 4.3
serves v6 only where unstable versions are enabled; like it, keeping a prepared transaction is refused.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.apis.shared.transactional import answered, as_known_to
from tidelog.coordinator.txn.decide import Producer
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

log = logging.getLogger("tidelog.init_producer_id")

FENCED_FROM = 4


def handle(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Promise[InitProducerIdResponse]:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _idempotent(context)
    if not request.transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    transactions = context.services.transactions
    if request.enable2_pc and not context.services.config.transaction_two_phase_commit_enable:
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    current = None if request.producer_id == -1 else Producer(request.producer_id, request.producer_epoch)
    promise = transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, current, two_phase=request.enable2_pc
    )
    return answered(
        promise,
        lambda made: InitProducerIdResponse(producer_id=made.id, producer_epoch=made.epoch),
        lambda code: _refused(as_known_to(code, knows_fenced=context.version >= FENCED_FROM)),
    )


def _idempotent(context: Context) -> Promise[InitProducerIdResponse]:
    answer: Promise[InitProducerIdResponse] = Promise()

    def allocated(promise: Promise[int]) -> None:
        if promise.error is None:
            answer.resolve(InitProducerIdResponse(producer_id=promise.result(), producer_epoch=0))
            return
        log.warning("no producer id for %s: %s; the client is told to ask again", context.client_id, promise.error)
        answer.resolve(_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    context.services.producer_ids.next().on_done(allocated)
    return answer


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
