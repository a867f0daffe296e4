"""DescribeCluster (key 60): the brokers, and one that requests for the controller may be sent to.

v1 asks for brokers or controllers; which of them a listener tells of is what it is for, and asking for the others is an
error (INVALID_REQUEST in v0, which can't ask). v2 tells fenced brokers too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.listeners import ListenerKind, kind_of
from tidelog.apis.shared.nodes import CLUSTER_OPERATIONS, NO_NODE, NOT_TOLD, any_alive, brokers_on
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

BROKERS = 1
CONTROLLERS = 2


NAMES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    is_controller = kind_of(context.listener, context.services.config) is ListenerKind.CONTROLLER
    served = CONTROLLERS if is_controller else BROKERS
    if request.endpoint_type not in NAMES:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    if request.endpoint_type != served:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if context.version else ErrorCode.INVALID_REQUEST,
            error_message=f"The request was sent to an endpoint of type {NAMES[served]}, "
            f"but we wanted an endpoint of type {NAMES[request.endpoint_type]}",
        )
    return _controllers(context, request) if is_controller else _brokers(context, request)


def _controllers(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Those that have registered, where they listen under the name of this listener."""
    services = context.services
    found = [
        DescribeClusterBroker(broker_id=controller.id, host=endpoint.host, port=endpoint.port)
        for controller in sorted(services.metadata.image.controllers.values(), key=lambda one: one.id)
        for endpoint in controller.endpoints
        if endpoint.name == context.listener
    ]
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=services.cluster_id,
        controller_id=services.quorum.leader_id,
        brokers=found,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_TOLD
        ),
    )


def _brokers(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    image = context.services.metadata.image
    brokers = [
        DescribeClusterBroker(
            broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack, is_fenced=broker.fenced
        )
        for broker, endpoint in brokers_on(image, context.listener, fenced=request.include_fenced_brokers)
    ]
    controller = any_alive(image, context.services.node_id)
    return DescribeClusterResponse(
        cluster_id=context.services.cluster_id,
        controller_id=controller if any(broker.broker_id == controller for broker in brokers) else NO_NODE,
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_TOLD
        ),
    )
