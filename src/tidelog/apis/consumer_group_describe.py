"""ConsumerGroupDescribe (key 69): epochs, assignor and members of groups of the consumer protocol (KIP-848).

A group that isn't there, or is a classic one, is answered with GROUP_ID_NOT_FOUND, upon which clients ask
DescribeGroups. v1 tells whether a member speaks the classic protocol. A group that is named again and
again is described once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.nodes import GROUP_OPERATIONS
from tidelog.apis.shared.repeats import bounded
from tidelog.coordinator.group.consumer.describe import described
from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.env.slices import Steps
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context


def handle(context: Context, request: ConsumerGroupDescribeRequest) -> Steps[ConsumerGroupDescribeResponse]:
    asked = yield from bounded(request.group_ids, str)
    groups: list[DescribedGroup] = []
    for group_id in asked:
        group = yield from _described(context, group_id)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
        groups.append(group)
        yield
    return ConsumerGroupDescribeResponse(groups=groups)


def _described(context: Context, group_id: str) -> Steps[DescribedGroup]:
    services = context.services
    try:
        group = services.groups.shard_of(group_id).state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    default = services.config.group_consumer_assignors[0]
    return (yield from described(group, default, services.metadata.image))
