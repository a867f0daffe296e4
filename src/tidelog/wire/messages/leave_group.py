"""LeaveGroup (key 13): members go at once, rather than when their session ends.

v3 many members in one request, static ones by their instance id; v4 flexible; v5 a reason (KIP-800).
"""

from tidelog.wire.codec import i16, i32, message, struct, wire


@struct
class MemberIdentity:
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = wire("5+", default=None, ignorable=True)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = ""
    member_id: str = wire("0-2", default="")
    members: list[MemberIdentity] = wire("3+", factory=list)


@struct
class MemberResponse:
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: i16 = 0


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: i32 = wire("1+", default=0, ignorable=True)
    error_code: i16 = 0
    members: list[MemberResponse] = wire("3+", factory=list)
