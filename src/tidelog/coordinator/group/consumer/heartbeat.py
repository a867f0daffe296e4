"""ConsumerGroupHeartbeat as a decision: a member joins, stays, or takes its next step.

A heartbeat that brings nothing new writes nothing. The assignment is told when it changed, and to a member that sent
everything it has to say: it lost track, or it begins.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.caller import Caller
from tidelog.coordinator.group.consumer import membership, validation
from tidelog.coordinator.group.consumer.context import DecisionContext
from tidelog.coordinator.group.consumer.progress import advance
from tidelog.coordinator.group.consumer.state import JOIN_EPOCH, ConsumerGroup, Epochs, Member
from tidelog.machine.decision import Decision
from tidelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


class Beat(NamedTuple):
    """The answer, and the member as it is from now on."""

    response: ConsumerGroupHeartbeatResponse
    member: Member
    compared: bool
    moved: bool
    resolved: bool
    wants_target: bool


def heartbeat(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    context: DecisionContext,
    new_id: Callable[[], str],
) -> Decision[Entry, Beat]:
    """Of a member that doesn't leave. `new_id` makes an id for one that comes without."""
    validation.check_room(group, request.member_id, request.instance_id, context.terms.members_max)
    identity = membership.find(group, request, request.member_id or new_id())
    after = membership.updated(identity.member, request, caller)
    entries, step = advance(group, identity, after, request.topic_partitions, context)
    response = ConsumerGroupHeartbeatResponse(
        member_id=step.member.id,
        member_epoch=step.member.epoch,
        heartbeat_interval_ms=context.terms.heartbeat_interval_ms,
    )
    if (
        request.member_epoch == JOIN_EPOCH
        or _is_full(request)
        or (step.member.assigned is not identity.member.assigned and step.member.assigned != identity.member.assigned)
    ):
        response.assignment = _assignment(step.member.assigned)
    return Decision(entries, Beat(response, step.member, step.compared, step.moved, step.resolved, step.wants_target))


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    return (
        request.rebalance_timeout_ms != -1
        and request.topic_partitions is not None
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
    )


def _assignment(assigned: Epochs) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, partitions=sorted(epochs)) for topic, epochs in assigned.items()
        ]
    )
