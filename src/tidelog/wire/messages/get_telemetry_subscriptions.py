"""GetTelemetrySubscriptions (key 71): which metrics a client should push, and when (KIP-714)."""

from tidelog.wire.codec import i8, i16, i32, message, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: uuid = ZERO_UUID


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    client_instance_id: uuid = ZERO_UUID
    subscription_id: i32 = 0
    accepted_compression_types: list[i8] = wire(factory=list)
    push_interval_ms: i32 = 0
    telemetry_max_bytes: i32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = wire(factory=list)
