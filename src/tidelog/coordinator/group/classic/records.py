"""The record of a classic group, in the version that brokers of 4.3 write."""

from collections.abc import Mapping

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.wire.records.groups import GroupMetadataKey, GroupMetadataValue, MemberMetadata

VERSION = 3


def entry(group_id: str, value: GroupMetadataValue) -> Entry:
    return Entry(GroupMetadataKey(group=group_id), value, version=VERSION)


def tombstone(group_id: str) -> Entry:
    """The group is no more."""
    return Entry(GroupMetadataKey(group=group_id), None)


def new_group(since_ms: int) -> GroupMetadataValue:
    """A group that nobody belongs to yet."""
    return GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=since_ms)


def group_entry(group: LiveClassicGroup, assignments: Mapping[str, bytes]) -> Entry:
    """The group as it stands, with these assignments."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return entry(group.group_id, value)
