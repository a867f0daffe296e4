"""PushTelemetry (key 72): a client's metrics (KIP-714). Tidelog subscribes to none, so a push is checked and let go.

The checks are Kafka's, but for those that need memory of the client (see GetTelemetrySubscriptions). Only v0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.get_telemetry_subscriptions import subscription_id
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

RESERVED = (ZERO_UUID, ZERO_UUID[:15] + b"\x01")
COMPRESSION_MAX = 4


def handle(context: Context, request: PushTelemetryRequest) -> PushTelemetryResponse:
    if request.client_instance_id in RESERVED:
        code = ErrorCode.INVALID_REQUEST
    elif request.subscription_id != subscription_id(request.client_instance_id):
        code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    elif not 0 <= request.compression_type <= COMPRESSION_MAX:
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    elif len(request.metrics) > context.services.config.telemetry_max_bytes:
        code = ErrorCode.TELEMETRY_TOO_LARGE
    else:
        code = ErrorCode.NONE
    return PushTelemetryResponse(error_code=code)
