"""DescribeGroups (key 15): state, protocol and members of classic groups.

v3 authorized operations; v4 instance ids; v5 flexible; v6 GROUP_ID_NOT_FOUND, with a message, for groups that aren't
there (KIP-1043).
"""

from tidelog.wire.codec import i16, i32, message, struct, wire


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = wire(factory=list)
    include_authorized_operations: bool = wire("3+", default=False)


@struct
class DescribedGroupMember:
    member_id: str = ""
    group_instance_id: str | None = wire("4+", default=None, ignorable=True)
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@struct
class DescribedGroup:
    error_code: i16 = 0
    error_message: str | None = wire("6+", default=None)
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = wire(factory=list)
    authorized_operations: i32 = wire("3+", default=-2147483648)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: i32 = wire("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = wire(factory=list)
