"""ListGroups (key 16): the groups that this broker coordinates.

v4 filters by state and tells it (KIP-518); v5 does so with types (KIP-848). Clients ask every broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.listing import list_groups
from tidelog.env.slices import Steps
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context


def handle(context: Context, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    groups = yield from list_groups(context.services.groups, request.states_filter, request.types_filter)
    return ListGroupsResponse(groups=groups)
