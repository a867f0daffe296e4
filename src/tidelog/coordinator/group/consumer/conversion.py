"""A live group between the two protocols, both ways.

Up: a member of the new protocol comes to a classic group of consumers. Its generation becomes the epochs, what its
members have the target; they stay with that and go on speaking the classic protocol; whoever waits for a rebalance is
told to join again. Down: the last member of the new protocol goes, and the others make a classic group
in the generation of the group epoch, which then rebalances. In both directions the records of the one form end with
those of the other in one batch, so that a crash leaves the group in either, never in between.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from immutables import Map

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.classic import records as classic_records
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import LiveMember
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.consumer import embedded
from tidelog.coordinator.group.consumer import entries as records
from tidelog.coordinator.group.consumer.context import DecisionContext
from tidelog.coordinator.group.consumer.embedded import Said
from tidelog.coordinator.group.consumer.replay import with_member
from tidelog.coordinator.group.consumer.state import (
    NOTHING,
    PROTOCOL_TYPE,
    ClassicFacts,
    ConsumerGroup,
    Member,
    Partitions,
    Subscription,
    TopicPartition,
)
from tidelog.coordinator.group.consumer.terms import Terms
from tidelog.coordinator.group.consumer.topics import group_hash
from tidelog.machine.decision import Decision
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError

ASSIGNORS_OF_CLIENTS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""What they add to an assignment is nothing that the new protocol needs: librdkafka's tell again who has what."""


class Downgrade(NamedTuple):
    """The records, and the classic group that they make: stable, without deadlines yet."""

    entries: list[Entry]
    live: LiveClassicGroup


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
    taken: set[TopicPartition] = set()
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


def _untaken(partitions: Partitions, image: ClusterImage, taken: set[TopicPartition]) -> Partitions:
    """Those that exist and no other member was given: an assignor of a client may have done as it liked."""
    found: dict[bytes, tuple[int, ...]] = {}
    for topic, indexes in partitions.items():
        count = len(image.topics_by_id[topic].partitions)
        mine = tuple(index for index in indexes if 0 <= index < count and (topic, index) not in taken)
        if mine:
            found[topic] = mine
            taken.update((topic, index) for index in mine)
    return found


def _refused(classic: LiveClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}",
    )


def may_downgrade(group: ConsumerGroup, leaving: Collection[Member], terms: Terms) -> bool:
    """Whether those who stay are some, all speak the classic protocol, and may go back to it."""
    staying = len(group.members) - len(leaving)
    classic = group.classic_members - sum(member.classic is not None for member in leaving)
    return 0 < staying == classic and staying <= terms.classic_members_max and terms.may_downgrade


def downgrade(
    group: ConsumerGroup, leaving: Collection[str], context: DecisionContext, joining: Member | None = None
) -> Downgrade:
    """The classic group of those who stay. `joining` takes the place, and the assignment, of the static member whose
    instance id it has."""
    live = LiveClassicGroup(group.id, Moment(0.0, context.now_ms))
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
        member.assignment = embedded.write_assignment(partitions, version, context.image)
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
