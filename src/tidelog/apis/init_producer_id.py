"""InitProducerId (key 22): a producer id and epoch for an idempotent producer.

Ids come from blocks that the controller hands out, so that none is ever given twice. A producer that asks with the id
and epoch it has gets a new id and epoch 0, as Kafka answers where no transaction is involved. Transactional producers
are refused with a fatal error, since there are no transactions here yet. Where the controller can't hand out a block,
the client is told to try again, with the error that Kafka uses for it.

v2 is flexible; v3 carries the producer's current id and epoch (KIP-360); v4 may answer PRODUCER_FENCED; v5 belongs to
transactions (KIP-890).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tidelog.apis.context import Context

log = logging.getLogger("tidelog.init_producer_id")


def handle(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Promise[InitProducerIdResponse]:
    if request.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST if not request.transactional_id else ErrorCode.UNSUPPORTED_VERSION
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    answer: Promise[InitProducerIdResponse] = Promise()

    def allocated(promise: Promise[int]) -> None:
        if promise.error is None:
            answer.resolve(InitProducerIdResponse(producer_id=promise.result(), producer_epoch=0))
            return
        log.warning("no producer id for %s: %s; the client is told to ask again", context.client_id, promise.error)
        answer.resolve(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1))

    context.services.producer_ids.next().on_done(allocated)
    return answer
