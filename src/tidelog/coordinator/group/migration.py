"""A live group between the two protocols, both ways.

Up: a member of the new protocol comes to a classic group of consumers. Its generation becomes the epochs, what its
members have the target; they stay with that and go on speaking the classic protocol; whoever waits for a rebalance is
told to join again. Down: the last member of the new protocol goes, and the others make a classic group
in the generation of the group epoch, which then rebalances. In both directions the records of the one form end with
those of the other in one batch, so that a crash leaves the group in either, never in between.

`upgrade` and `downgrade` are decisions; `take_over` and `install` bring what is live along once they are appended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from immutables import Map

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.classic import records as classic_records
from tidelog.coordinator.group.classic.decision import NOTHING as NOTHING_FOLLOWS
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import LiveMember
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.outcomes import bury
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.rebalance import prepare
from tidelog.coordinator.group.classic.shell import act, limits_of, moment
from tidelog.coordinator.group.classic.state import ClassicGroup
from tidelog.coordinator.group.consumer import embedded
from tidelog.coordinator.group.consumer import entries as records
from tidelog.coordinator.group.consumer.downgrade import Downgrade
from tidelog.coordinator.group.consumer.embedded import Said
from tidelog.coordinator.group.consumer.replay import with_member
from tidelog.coordinator.group.consumer.shell import keep
from tidelog.coordinator.group.consumer.state import (
    JOIN_EPOCH,
    NOTHING,
    PROTOCOL_TYPE,
    ClassicFacts,
    ConsumerGroup,
    Member,
    Partitions,
    Subscription,
)
from tidelog.coordinator.group.consumer.terms import Terms
from tidelog.coordinator.group.consumer.topics import group_hash
from tidelog.machine.decision import Decision
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from tidelog.coordinator.group.consumer.context import DecisionContext
    from tidelog.coordinator.group.consumer.live import LiveConsumerGroup
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState

ASSIGNORS_OF_CLIENTS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""What they add to an assignment is nothing that the new protocol needs: librdkafka's tell again who has what."""


class Opened(NamedTuple):
    """The group that a heartbeat of the new protocol is for, and the classic one that it was until now."""

    group: ConsumerGroup
    classic: LiveClassicGroup | None


def open_group(
    shard: GroupShard, state: GroupsState, request: ConsumerGroupHeartbeatRequest, context: DecisionContext
) -> Decision[Entry, Opened]:
    """The group where it isn't one of the new protocol yet: a new one, or what a classic group becomes."""
    group_id = request.group_id
    known, classic = state.groups.get(group_id), shard.live.classic.get(group_id)
    if request.member_epoch != JOIN_EPOCH:
        exists = known is not None or classic is not None
        message = f"Group {group_id} is not a consumer group." if exists else f"Consumer group {group_id} not found."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    if classic is None and isinstance(known, ClassicGroup):
        classic = LiveClassicGroup.loaded(known, moment(shard.clock))
    if classic is not None and classic.members:
        entries, group = upgrade(classic, context.image, context.terms)
        return Decision(entries, Opened(group, classic))
    entries = [] if known is None else [classic_records.tombstone(group_id)]
    return Decision(entries, Opened(ConsumerGroup(group_id), classic))


def upgrade(classic: LiveClassicGroup, image: ClusterImage, terms: Terms) -> Decision[Entry, ConsumerGroup]:
    """The classic group as one of the new protocol; GROUP_ID_NOT_FOUND where it can't be or mayn't."""
    if not terms.may_upgrade:
        raise _refused(classic, "online upgrade is disabled.")
    if classic.protocol_type != PROTOCOL_TYPE:
        raise _refused(classic, "the group does not use the consumer embedded protocol.")
    if len(classic.members) > terms.members_max:
        raise _refused(classic, "the group size exceeds the consumer group maximum size.")
    group = ConsumerGroup(classic.group_id, epoch=classic.generation, target_epoch=classic.generation)
    try:
        said = {
            live.member_id: embedded.read_subscription(_metadata(live, classic.protocol))
            for live in classic.members.values()
        }
        target = _held(classic, said, image)
        for live in classic.members.values():
            member = _upgraded(classic, live, said[live.member_id], target[live.member_id])
            group = with_member(group, None, member)
    except MalformedError as error:
        raise _refused(classic, "the embedded consumer protocol is malformed.") from error
    group = replace(group, target=Map(target), metadata_hash=group_hash(group.subscriptions, group.resolved, image))
    return Decision([classic_records.tombstone(classic.group_id), *records.group_entries(group)], group)


def _held(classic: LiveClassicGroup, said: Mapping[str, Said], image: ClusterImage) -> dict[str, Partitions]:
    """What each member may be using: what it was assigned and, after that, what it said that it has when it joined.

    Cooperative members go on with what they have until an assignment says otherwise, also where a generation ended
    before it had one, and with what they must give up until they join again.
    """
    taken: set[TopicIdPartition] = set()
    held: dict[str, Partitions] = {}
    for live in classic.members.values():
        held[live.member_id] = NOTHING
        if live.assignment:
            assignment = embedded.read_assignment(live.assignment)
            if assignment.user_data and classic.protocol not in ASSIGNORS_OF_CLIENTS:
                raise _refused(
                    classic,
                    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                    "default assignor before re-attempting the upgrade.",
                )
            assigned = embedded.partitions_by_id(assignment.assigned_partitions, image)
            held[live.member_id] = _untaken(assigned, image, taken)
    for member_id, own in held.items():
        more = _untaken(embedded.partitions_by_id(said[member_id].owned, image), image, taken)
        if more:
            topics = {**own, **more}
            held[member_id] = {topic: tuple(sorted((*own.get(topic, ()), *more.get(topic, ())))) for topic in topics}
    return held


def _upgraded(classic: LiveClassicGroup, live: LiveMember, said: Said, partitions: Partitions) -> Member:
    return Member(
        live.member_id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=live.instance_id,
        rack_id=said.rack_id,
        rebalance_timeout_ms=live.rebalance_timeout_ms,
        client_id=live.client_id,
        client_host=live.client_host,
        subscription=Subscription(said.topics),
        assigned={topic: dict.fromkeys(indexes, classic.generation) for topic, indexes in partitions.items()},
        classic=ClassicFacts(live.session_timeout_ms, live.protocols),
    )


def _metadata(live: LiveMember, protocol: str | None) -> bytes:
    """What it said under the group's protocol; all its protocols say the same where the group has none yet."""
    return next((data for name, data in live.protocols if name == protocol), live.protocols[0][1])


def _untaken(partitions: Partitions, image: ClusterImage, taken: set[TopicIdPartition]) -> Partitions:
    """Those that exist and no other member was given: an assignor of a client may have done as it liked."""
    free: dict[bytes, tuple[int, ...]] = {}
    for topic, indexes in partitions.items():
        count = len(image.topics_by_id[topic].partitions)
        mine = tuple(index for index in indexes if 0 <= index < count and (topic, index) not in taken)
        if mine:
            free[topic] = mine
            taken.update((topic, index) for index in mine)
    return free


def _refused(classic: LiveClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}",
    )


def downgrade(
    group: ConsumerGroup, leaving: Collection[str], image: ClusterImage, now_ms: int, joining: Member | None = None
) -> Downgrade:
    """The classic group of those who stay. `joining` takes the place, and the assignment, of the static member whose
    instance id it has."""
    live = LiveClassicGroup(group.id, Moment(0.0, now_ms))
    former: dict[str, str] = {}
    staying = [member for _, member in sorted(group.members.items()) if member.id not in leaving]
    if joining is not None:
        staying = [member for member in staying if member.instance_id != joining.instance_id]
        staying.append(joining)
        former[joining.id] = group.static[joining.instance_id or ""]
    for member in staying:
        assert member.classic is not None
        live.add(_downgraded(member, member.classic), PROTOCOL_TYPE)
    live.generation = group.epoch
    live.protocol = live.elect_protocol()
    live.phase = Phase.STABLE
    assignments: dict[str, bytes] = {}
    for member in live.members.values():
        partitions = group.target.get(former.get(member.member_id, member.member_id), NOTHING)
        version = _version(member.metadata(live.protocol))
        member.assignment = embedded.write_assignment(partitions, version, image)
        assignments[member.member_id] = member.assignment
    return Downgrade([*records.group_gone(group), classic_records.group_entry(live, assignments)], live)


def _downgraded(member: Member, classic: ClassicFacts) -> LiveMember:
    return LiveMember(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
    )


def _version(metadata: bytes) -> int:
    try:
        return embedded.version_of(metadata)
    except MalformedError:
        return 0


# -- what is live comes along


def take_over(
    coordinator: GroupCoordinator, shard: GroupShard, live: LiveConsumerGroup, classic: LiveClassicGroup
) -> None:
    """The classic group's members are the new group's now, and their sessions go on under it; who waits for a
    generation is told to join again, and will be heard."""
    now_s = shard.clock.monotonic()
    for member in classic.members.values():
        deadlines = live.of(member.member_id)
        deadlines.session_s = now_s + member.session_timeout_ms / 1000
        live.wake_by(deadlines.session_s)
    keep(coordinator, shard, classic.group_id, live)
    act(coordinator, shard, classic, bury(classic, ErrorCode.REBALANCE_IN_PROGRESS, moment(shard.clock)))


def install(
    coordinator: GroupCoordinator, shard: GroupShard, downgrade: Downgrade, reason: str, *, rebalance: bool = True
) -> None:
    """The group is a classic one from now on: its members' sessions begin, and they are called to join again."""
    live = downgrade.successor
    assert isinstance(live, LiveClassicGroup)
    now = moment(shard.clock)
    shard.live.classic[live.group_id] = live
    for member in live.members.values():
        live.expect(member, now)
    follows = prepare(live, reason, limits_of(coordinator.config), now) if rebalance else NOTHING_FOLLOWS
    act(coordinator, shard, live, follows)
