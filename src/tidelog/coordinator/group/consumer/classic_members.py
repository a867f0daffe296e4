"""Members of the classic protocol in a group of the consumer protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.group.caller import Caller
from tidelog.coordinator.group.consumer import classic_join, embedded
from tidelog.coordinator.group.consumer.departures import Gone, fence
from tidelog.coordinator.group.consumer.entries import epoch_entry, group_gone
from tidelog.coordinator.group.consumer.live import NEVER, forget
from tidelog.coordinator.group.consumer.membership import known_instance, unknown
from tidelog.coordinator.group.consumer.shell import context_of, departed, heard_of, keep, live_of, looked_at
from tidelog.coordinator.group.consumer.state import NOTHING, PROTOCOL_TYPE, ConsumerGroup, Member, MemberState
from tidelog.coordinator.group.consumer.target import is_due
from tidelog.coordinator.group.consumer.target_job import target_decided
from tidelog.coordinator.group.consumer.topics import group_hash
from tidelog.env.promise import Promise
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.uuids import uuid_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.coordinator.entry import Entry
    from tidelog.coordinator.group.consumer.classic_join import Joined
    from tidelog.coordinator.group.consumer.context import DecisionContext
    from tidelog.coordinator.group.consumer.downgrade import Downgrade
    from tidelog.coordinator.group.consumer.live import LiveConsumerGroup
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState


class Join(NamedTuple):
    """What came of a JoinGroup. With a `downgrade` the group is a classic one once the promise is resolved, and the
    request is for that."""

    promise: Promise[JoinGroupResponse]
    downgrade: Downgrade | None = None


def remove(shard: GroupShard, group: ConsumerGroup) -> Promise[None]:
    """The group has no members: what is left of it in the log goes."""
    return shard.submit(lambda state, _: Decision(group_gone(group), None))


def join(
    coordinator: GroupCoordinator,
    shard: GroupShard,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    version: int,
    caller: Caller,
) -> Join:
    live = live_of(shard, group.id)

    def decide(state: GroupsState, now_ms: int) -> Decision[Entry, tuple[Joined, DecisionContext]]:
        context = context_of(coordinator, live, group, group.id, now_ms)
        entries, joined = classic_join.join(
            group, request, version, caller, context, lambda: uuid_text(coordinator.random.uuid())
        )
        return Decision(entries, (joined, context))

    submitted, decided = shard.hand_in(decide)
    if decided is None:
        return Join(failed_join(submitted.error, request))
    joined, context = decided
    if joined.downgrade is not None:
        forget(shard, group.id)
    if joined.member is not None:
        looked_at(live, context, compared=joined.compared, resolved=joined.resolved)
        target_decided(coordinator, shard, group.id, live, wanted=joined.wants_target)
        member, session_ms = joined.member, request.session_timeout_ms
        deadlines = heard_of(coordinator, shard, group.id, live, member, session_ms, moved=True)
        deadlines.join_s = NEVER
        deadlines.sync_s = shard.clock.monotonic() + member.rebalance_timeout_ms / 1000
        live.wake_by(deadlines.sync_s)
        keep(coordinator, shard, group.id, live)
    return Join(submitted.map(lambda decided: decided[0].response), joined.downgrade)


def failed_join(error: BaseException | None, request: JoinGroupRequest) -> Promise[JoinGroupResponse]:
    if not isinstance(error, KafkaError):
        return Promise[JoinGroupResponse].failed(error or AssertionError("a decision was taken, or failed"))
    return Promise[JoinGroupResponse].resolved(JoinGroupResponse(error_code=error.code, member_id=request.member_id))


def sync(
    coordinator: GroupCoordinator, shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest
) -> Promise[SyncGroupResponse]:
    try:
        member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
        _check_protocol(member, request)
        _check_settled(coordinator, shard, group, member)
        version = _version(member)
    except KafkaError as error:
        return Promise[SyncGroupResponse].resolved(SyncGroupResponse(error_code=error.code))
    assert member.classic is not None
    live = live_of(shard, group.id)
    live.of(member.id).sync_s = NEVER
    heard_of(coordinator, shard, group.id, live, member, member.classic.session_timeout_ms, moved=False)
    assigned = {topic: tuple(epochs) for topic, epochs in member.assigned.items()}
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=embedded.write_assignment(assigned, version, coordinator.metadata.image),
    )
    return shard.submit(lambda state, _: Decision((), response))


def beat(
    coordinator: GroupCoordinator, shard: GroupShard, group: ConsumerGroup, request: HeartbeatRequest
) -> HeartbeatResponse:
    try:
        member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    assert member.classic is not None
    live = live_of(shard, group.id)
    heard_of(coordinator, shard, group.id, live, member, member.classic.session_timeout_ms, moved=False)
    if (
        member.epoch < group.target_epoch
        or member.state == MemberState.UNREVOKED
        or (member.state == MemberState.UNRELEASED and not _waits(group, member))
    ):
        _call_to_join(coordinator, shard, group, member)
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    if group.classic_members == len(group.members):
        _look_after(coordinator, shard, group, live)
    return HeartbeatResponse()


def _look_after(
    coordinator: GroupCoordinator, shard: GroupShard, group: ConsumerGroup, live: LiveConsumerGroup
) -> None:
    """What heartbeats of the consumer protocol do by the way: the topics are compared with those that there are, and a
    target that is due is computed. Where only classic members are left, nobody else would; they hear by the next."""
    context = context_of(coordinator, live, group, group.id, shard.clock.now_ms())
    epoch = group.epoch
    if context.compare_topics:
        metadata_hash = group_hash(group.subscriptions, group.resolved, context.image)
        if metadata_hash != group.metadata_hash:
            epoch += 1
            entry = epoch_entry(group.id, epoch, metadata_hash)
            if shard.submit(lambda state, _: Decision((entry,), None)).error is not None:
                return
        looked_at(live, context, compared=True, resolved=False)
    if group.target_epoch < epoch and is_due(group, context.terms.assignment_interval_ms, context.now_ms):
        target_decided(coordinator, shard, group.id, live, wanted=True)


def leave(
    coordinator: GroupCoordinator, shard: GroupShard, group: ConsumerGroup, leavers: Sequence[MemberIdentity]
) -> Promise[LeaveGroupResponse]:
    answers: list[MemberResponse] = []
    leaving: dict[str, Member] = {}
    for leaver in leavers:
        answer = MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id)
        try:
            member = _leaver(group, leaver)
            leaving[member.id] = member
        except KafkaError as error:
            answer.error_code = error.code
        answers.append(answer)
    live = live_of(shard, group.id)

    def decide(state: GroupsState, now_ms: int) -> Decision[Entry, Gone]:
        return fence(group, list(leaving.values()), context_of(coordinator, live, group, group.id, now_ms))

    promise, gone = shard.hand_in(decide)
    if gone is not None:
        departed(coordinator, shard, group.id, gone)
    return promise.map(lambda _: LeaveGroupResponse(members=answers))


def _leaver(group: ConsumerGroup, leaver: MemberIdentity) -> Member:
    """An administrator names a static member by its instance id alone."""
    if leaver.group_instance_id is None:
        member = group.members.get(leaver.member_id)
        if member is None:
            raise unknown(group, leaver.member_id)
        return member
    member = group.static_member(leaver.group_instance_id)
    if member is not None and not leaver.member_id:
        return member
    return known_instance(member, leaver.group_instance_id, leaver.member_id)


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise unknown(group, member_id)
    else:
        member = known_instance(group.static_member(instance_id), instance_id, member_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if member.epoch != generation:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member_id}.",
        )
    return member


def _check_protocol(member: Member, request: SyncGroupRequest) -> None:
    assert member.classic is not None
    name = member.classic.protocols[0][0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member.id} joined with {PROTOCOL_TYPE} and {name}."
        )


def _version(member: Member) -> int:
    """In which version the member reads its assignment: its first protocol's. A group that was upgraded was looked at
    under the protocol that it had, which may be another one."""
    assert member.classic is not None
    name, metadata = member.classic.protocols[0]
    try:
        return embedded.version_of(metadata)
    except MalformedError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"what member {member.id} says under {name} can't be read: {error}"
        ) from error


def _check_settled(coordinator: GroupCoordinator, shard: GroupShard, group: ConsumerGroup, member: Member) -> None:
    """REBALANCE_IN_PROGRESS where a newer target is there; one that is giving something up goes on with that first."""
    if group.target_epoch > member.epoch and member.state != MemberState.UNREVOKED:
        _call_to_join(coordinator, shard, group, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"Member {member.id} of group {group.id} should rejoin.")


def _call_to_join(coordinator: GroupCoordinator, shard: GroupShard, group: ConsumerGroup, member: Member) -> None:
    """It must join again within its rebalance timeout."""
    live = live_of(shard, group.id)
    deadlines = live.of(member.id)
    if deadlines.join_s == NEVER:
        deadlines.join_s = shard.clock.monotonic() + member.rebalance_timeout_ms / 1000
        live.wake_by(deadlines.join_s)
        keep(coordinator, shard, group.id, live)


def _waits(group: ConsumerGroup, member: Member) -> bool:
    """Whether something of the member's target still is of another."""
    for topic, partitions in group.target.get(member.id, NOTHING).items():
        assigned = member.assigned.get(topic, NOTHING)
        for partition in partitions:
            if partition not in assigned and (topic, partition) in group.owners:
                return True
    return False
