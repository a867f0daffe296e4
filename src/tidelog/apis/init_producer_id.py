"""InitProducerId (key 22): a producer id and epoch for an idempotent producer.

Ids come from blocks that the controller hands out, so that none is ever given twice. A producer that asks with the id
and epoch it has gets a new id and epoch 0, as Kafka answers where no transaction is involved. Transactional producers
are refused with a fatal error, since there are no transactions here yet.

v2 is flexible; v3 carries the producer's current id and epoch (KIP-360); v4 may answer PRODUCER_FENCED; v5 belongs to
transactions (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tidelog.apis.context import Context


def handle(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Promise[InitProducerIdResponse]:
    if request.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST if not request.transactional_id else ErrorCode.UNSUPPORTED_VERSION
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    return context.services.producer_ids.next().map(
        lambda producer_id: InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    )
