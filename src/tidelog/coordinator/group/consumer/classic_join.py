"""JoinGroup of a member of the classic protocol in a group of the consumer protocol, as a decision.

Its generation is its member epoch. It joins to learn of the next target: what it must give up it has given up when it
joins again and names what it still has; eager members have nothing then, cooperative ones what they keep.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.caller import Caller
from tidelog.coordinator.group.consumer.context import DecisionContext
from tidelog.coordinator.group.consumer.downgrade import Downgrade, may_downgrade
from tidelog.coordinator.group.consumer.embedded import Said, as_owned, read_subscription
from tidelog.coordinator.group.consumer.membership import Found, known_instance, replacement
from tidelog.coordinator.group.consumer.progress import advance
from tidelog.coordinator.group.consumer.state import PROTOCOL_TYPE, ClassicFacts, ConsumerGroup, Member, Subscription
from tidelog.coordinator.group.consumer.validation import check_room
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

REQUIRES_ID_FROM = 4
"""The version of JoinGroup from which on a new member is told its id first."""


class Joined(NamedTuple):
    """The answer and the member; or only an answer; or the classic group that takes the request over."""

    response: JoinGroupResponse
    member: Member | None = None
    compared: bool = False
    resolved: bool = True
    wants_target: bool = False
    downgrade: Downgrade | None = None


def join(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    version: int,
    caller: Caller,
    context: DecisionContext,
    new_id: Callable[[], str],
) -> Decision[Entry, Joined]:
    if not (context.terms.may_upgrade or context.terms.may_downgrade):
        raise _inconsistent(
            f"Cannot join the consumer group {group.id} with the classic protocol because the group migration is "
            "disabled."
        )
    member_id = request.member_id or new_id()
    check_room(group, member_id, request.group_instance_id, context.terms.members_max)
    if not _is_supported(group, request):
        raise _inconsistent(f"Member {member_id}'s protocols are not supported.")
    if not request.member_id and request.group_instance_id is None and version >= REQUIRES_ID_FROM:
        return Decision([], Joined(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)))
    identity = _find(group, request, member_id)
    try:
        said = read_subscription(request.protocols[0].metadata)
    except MalformedError as error:
        raise _inconsistent("Malformed embedded consumer protocol in subscription deserialization.") from error
    after = _updated(identity.member, request, said, caller)
    response = JoinGroupResponse(
        member_id=member_id, protocol_type=PROTOCOL_TYPE, protocol_name=request.protocols[0].name
    )
    former = group.static_member(request.group_instance_id)
    if (
        former is not None
        and former.classic is None
        and may_downgrade(replaced(group, former, after), (), context.terms)
    ):
        made = context.downgrade(group, (), context.image, context.now_ms, joining=after)
        return Decision(made.entries, Joined(response, downgrade=made))
    entries, step = advance(group, identity, after, as_owned(said.owned, context.image), context)
    response.generation_id = step.member.epoch
    return Decision(entries, Joined(response, step.member, step.compared, step.resolved, step.wants_target))


def replaced(group: ConsumerGroup, former: Member, joining: Member) -> ConsumerGroup:
    """The group as it would count with `joining` in the place of a static member of the other protocol."""
    return replace(
        group, classic_members=group.classic_members + (former.classic is None and joining.classic is not None)
    )


def _is_supported(group: ConsumerGroup, request: JoinGroupRequest) -> bool:
    """Whether one of its assignors is known to all members of the classic protocol: they may have to go back to it."""
    if request.protocol_type != PROTOCOL_TYPE or not request.protocols:
        return False
    if not group.classic_members:
        return True
    counts: dict[str, int] = {}
    for member in group.members.values():
        if member.classic is not None:
            for name, _ in member.classic.protocols:
                counts[name] = counts.get(name, 0) + 1
    return any(counts.get(protocol.name) == group.classic_members for protocol in request.protocols)


def _find(group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> Found:
    instance_id = request.group_instance_id
    if instance_id is None:
        return Found(group.members.get(member_id) or Member(member_id))
    existing = group.static_member(instance_id)
    if request.member_id:
        return Found(known_instance(existing, instance_id, member_id))
    return Found(Member(member_id)) if existing is None else replacement(existing, member_id)


def _updated(member: Member, request: JoinGroupRequest, said: Said, caller: Caller) -> Member:
    after = replace(
        member,
        instance_id=request.group_instance_id if request.group_instance_id is not None else member.instance_id,
        rack_id=said.rack_id if said.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=_rebalance_timeout_ms(member, request),
        client_id=caller.client_id,
        client_host=caller.host,
        subscription=Subscription(said.topics),
        classic=ClassicFacts(
            request.session_timeout_ms, tuple((one.name, bytes(one.metadata)) for one in request.protocols)
        ),
    )
    return member if after == member else after


def _rebalance_timeout_ms(member: Member, request: JoinGroupRequest) -> int:
    """What it says; where that is nothing, what it said before, and its session's where it never said any."""
    said = (request.rebalance_timeout_ms, member.rebalance_timeout_ms)
    return next((timeout_ms for timeout_ms in said if timeout_ms != -1), request.session_timeout_ms)


def _inconsistent(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
