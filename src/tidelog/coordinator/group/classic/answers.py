"""The answers of the classic protocol, as the group stands."""

from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import LiveMember
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.wire.messages.sync_group import SyncGroupResponse


def joined(group: LiveClassicGroup, member: LiveMember) -> JoinGroupResponse:
    """The present generation; its leader is told who the members are."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member.member_id,
        members=_everyone(group) if group.leader == member.member_id else [],
    )


def refused(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


def fenced(member_id: str) -> JoinGroupResponse:
    """To the former self of a static member."""
    return JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=member_id, protocol_name=None)


def synced(group: LiveClassicGroup, member: LiveMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def unsynced(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def _everyone(group: LiveClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol),
        )
        for member in group.members.values()
    ]
