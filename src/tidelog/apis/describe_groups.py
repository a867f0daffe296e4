"""DescribeGroups (key 15): state, protocol and members of classic groups.

A group that isn't there is told to be Dead; so is one of the consumer protocol, which ConsumerGroupDescribe tells of:
clients that ask for one way fall back to the other. v3 can ask for the operations that are allowed, v6 gives the error
GROUP_ID_NOT_FOUND with a message (KIP-1043). A group that is named again and again is described
once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.apis.shared.nodes import GROUP_OPERATIONS
from tidelog.apis.shared.repeats import bounded
from tidelog.coordinator.group.listing import describe_group
from tidelog.env.slices import Steps, mapped
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context


GROUPS_A_STEP = 1
"""The first group of a shard has that loaded, and a group may have a thousand members."""


def handle(context: Context, request: DescribeGroupsRequest) -> Steps[DescribeGroupsResponse]:
    asked = yield from bounded(request.groups, str)
    describe = partial(_described, context, operations=request.include_authorized_operations)
    return DescribeGroupsResponse(groups=(yield from mapped(describe, asked, GROUPS_A_STEP)))


def _described(context: Context, group_id: str, *, operations: bool) -> DescribedGroup:
    group = describe_group(context.services.groups, group_id, context.version)
    if operations and not group.error_code:
        group.authorized_operations = GROUP_OPERATIONS
    return group
