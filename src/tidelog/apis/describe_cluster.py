"""DescribeCluster (key 60): the brokers, and one that requests for the controller may be sent to.

v1 asks for brokers or controllers; asking a broker's listener for controllers is an error. v2 tells fenced brokers too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    image = context.services.metadata.image
    brokers = [
        DescribeClusterBroker(
            broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack, is_fenced=broker.fenced
        )
        for broker, endpoint in brokers_on(image, context.listener, fenced=request.include_fenced_brokers)
    ]
    controller = any_alive(image)
    return DescribeClusterResponse(
        cluster_id=context.services.cluster_id,
        controller_id=controller if any(broker.broker_id == controller for broker in brokers) else NO_NODE,
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_TOLD
        ),
    )
