"""UnregisterBroker (key 64): forget a broker that won't come back. What it alone had has no leader any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.bounded_wait import decide
from tidelog.controller import brokers
from tidelog.wire.errors import KafkaError
from tidelog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: UnregisterBrokerRequest) -> Promise[UnregisterBrokerResponse]:
    services, controller = context.services, context.services.controller

    def answer(promise: Promise[KafkaError | None]) -> UnregisterBrokerResponse:
        error = promise.result()
        if error is not None:
            return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
        controller.liveness.forget(request.broker_id)
        return UnregisterBrokerResponse()

    unregistered: Promise[KafkaError | None] = decide(
        services,
        lambda image, now_ms: brokers.unregister(image, request.broker_id, controller.defaults),
        services.config.request_timeout_ms,
        lambda error: error,
    )
    return unregistered.then(answer)
