"""DescribeGroups (key 15): state, protocol and members of classic groups.

A group that isn't there is told to be Dead; so is one of the consumer protocol, which ConsumerGroupDescribe tells of:
clients that ask for one way fall back to the other. v3 can ask for the operations that are allowed, v6 gives the error
GROUP_ID_NOT_FOUND with a message (KIP-1043). A group that is named again and again is described
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.nodes import GROUP_OPERATIONS
from tidelog.apis.repeats import bounded
from tidelog.coordinator.group.listing import describe_group
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from tidelog.apis.context import Context


def handle(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [
        describe_group(context.services.groups, group_id, context.version) for group_id in bounded(request.groups, str)
    ]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)
