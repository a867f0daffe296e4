"""ControllerRegistration (key 70): a controller names its endpoints and features to the one that leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.decision_answer import decided
from tidelog.controller import brokers
from tidelog.metadata.image import EndpointImage
from tidelog.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: ControllerRegistrationRequest) -> Promise[ControllerRegistrationResponse]:
    endpoints = [EndpointImage(e.name, e.host, e.port, e.security_protocol) for e in request.listeners]
    features = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    return decided(
        context.services.controller.submit(
            lambda image, now_ms: brokers.register_controller(
                image, request.controller_id, request.incarnation_id, endpoints, features
            )
        ),
        lambda _: ControllerRegistrationResponse(),
        lambda error: ControllerRegistrationResponse(error_code=error.code, error_message=error.message),
    )
