"""A classic group as ListGroups and DescribeGroups show it."""

from tidelog.coordinator.group.classic.checks import phase_of
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.state import ClassicGroup
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from tidelog.wire.messages.list_groups import ListedGroup

TYPE = "classic"


def listed(group_id: str, group: ClassicGroup | None, live: LiveClassicGroup | None) -> ListedGroup:
    """Also of a group that only committed offsets: neither record nor members."""
    return ListedGroup(
        group_id=group_id,
        protocol_type=_protocol_type(group, live),
        group_state=phase_of(group, live).value,
        group_type=TYPE,
    )


def described(group_id: str, group: ClassicGroup | None, live: LiveClassicGroup | None) -> DescribedGroup:
    """What members said about themselves is shown once a protocol holds for all: in a stable group."""
    shown = DescribedGroup(
        group_id=group_id,
        group_state=phase_of(group, live).value,
        protocol_type=_protocol_type(group, live),
    )
    if live is None:
        return shown
    is_stable = live.phase is Phase.STABLE
    if is_stable:
        shown.protocol_data = live.protocol or ""
    shown.members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(live.protocol) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in live.members.values()
    ]
    return shown


def _protocol_type(group: ClassicGroup | None, live: LiveClassicGroup | None) -> str:
    known = live if live is not None else group
    return (known.protocol_type if known is not None else None) or ""
