"""AllocateProducerIds (key 67): a broker asks for a block of producer ids, which nobody else ever gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.decision_answer import decided
from tidelog.controller import producer_ids
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: AllocateProducerIdsRequest) -> Promise[AllocateProducerIdsResponse]:
    return decided(
        context.services.controller.submit(
            lambda image, now_ms: producer_ids.allocate(image, request.broker_id, request.broker_epoch)
        ),
        lambda block: AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.length),
        lambda error: AllocateProducerIdsResponse(error_code=error.code),
    )
