"""GetTelemetrySubscriptions (key 71): which metrics a client should push, and how often (KIP-714).

Not advertised, so that no client asks by itself; one that does all the same is answered.

Tidelog collects no clients' metrics: every client gets an id and an empty subscription, so that it pushes nothing and
asks again after the interval. The subscription's number is computed from the client's id as Kafka computes it, so
nothing is remembered of clients, and one that asks too often is answered rather than throttled. Only v0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire.crc import crc32c
from tidelog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

PUSH_INTERVAL_MS = 300_000
ACCEPTED_COMPRESSION = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: the ones we'd rather have first."""


def handle(context: Context, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    client = request.client_instance_id
    if client == ZERO_UUID:
        client = context.services.env.random.uuid()
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client,
        subscription_id=subscription_id(client),
        accepted_compression_types=list(ACCEPTED_COMPRESSION),
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=context.services.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=[],
    )


def subscription_id(client: bytes) -> int:
    """The number of the empty subscription of this client."""
    halves = int.from_bytes(client[:8], "big") ^ int.from_bytes(client[8:], "big")
    number = crc32c(f"[]{PUSH_INTERVAL_MS}".encode()) ^ (halves >> 32) ^ (halves & 0xFFFF_FFFF)
    return number - (1 << 32) if number >= 1 << 31 else number
