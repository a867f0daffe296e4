"""PushTelemetry (key 72): metrics of a client (KIP-714)."""

from tidelog.wire.codec import i8, i16, i32, message, uuid
from tidelog.wire.uuids import ZERO_UUID


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: uuid = ZERO_UUID
    subscription_id: i32 = 0
    terminating: bool = False
    compression_type: i8 = 0
    metrics: bytes = b""


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
