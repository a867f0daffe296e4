"""FindCoordinator (key 10): which broker coordinates a group (key type 0) or a transactional id (1).

It is the leader of the key's partition of `__consumer_offsets` or `__transaction_state`. Where that topic isn't there
yet it is made first: Kafka answers COORDINATOR_NOT_AVAILABLE meanwhile, Tidelog waits for it. Share groups (2) aren't
coordinated here.

v1 knows key types and messages, v3 is flexible, v4 takes many keys.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.apis.create_topics import make_topics
from tidelog.apis.shared.internal_topics import creatable
from tidelog.apis.shared.nodes import NO_NODE, endpoint_of
from tidelog.coordinator.placement import CONSUMER_OFFSETS, TRANSACTION_STATE, partition_of
from tidelog.env.slices import Steps, mapped, settled
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.create_topics import CreateTopicsRequest
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
SHARE = 2
FIRST_WITH_MANY_KEYS = 4
MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: "There is no coordinator of this kind here: 0 is for groups, 1 for transactions.",
}


def handle(context: Context, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse]:
    topic, services = TOPICS.get(request.key_type), context.services
    if topic is not None and topic not in services.metadata.image.topics:
        brokers = sum(1 for broker in services.metadata.image.brokers.values() if not broker.fenced)
        wanted = CreateTopicsRequest(
            topics=[creatable(topic, services.config, brokers)], timeout_ms=services.config.request_timeout_ms
        )
        yield from settled(make_topics(services, wanted))
    find = partial(_find, context, request.key_type, topic)
    if context.version >= FIRST_WITH_MANY_KEYS:
        return FindCoordinatorResponse(coordinators=(yield from mapped(find, request.coordinator_keys)))
    coordinator = find(request.key)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=MESSAGES[ErrorCode(coordinator.error_code)],
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _find(context: Context, key_type: int, topic: str | None, key: str) -> Coordinator:
    if topic is None:
        message = "" if key_type == SHARE else MESSAGES[ErrorCode.INVALID_REQUEST]
        return _nobody(key, ErrorCode.INVALID_REQUEST, message)
    image = context.services.metadata.image
    known = image.topics.get(topic)
    if known is not None:
        leader = image.brokers.get(known.partitions[partition_of(key, len(known.partitions))].leader)
        endpoint = endpoint_of(leader, context.listener)
        if leader is not None and endpoint is not None and not leader.fenced:
            return Coordinator(key=key, node_id=leader.id, host=endpoint.host, port=endpoint.port)
    return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")


def _nobody(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, port=NO_NODE, error_code=code, error_message=message)
