"""SyncGroup (key 14): the leader hands out the assignment, everyone gets its part.

v3 static members; v4 flexible; v5 protocol type and name, checked against the group's (KIP-559).
"""

from tidelog.wire.codec import i16, i32, message, struct, wire


@struct
class SyncGroupRequestAssignment:
    member_id: str = ""
    assignment: bytes = b""


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = ""
    generation_id: i32 = 0
    member_id: str = ""
    group_instance_id: str | None = wire("3+", default=None)
    protocol_type: str | None = wire("5+", default=None, ignorable=True)
    protocol_name: str | None = wire("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = wire(factory=list)


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: i32 = wire("1+", default=0, ignorable=True)
    error_code: i16 = 0
    protocol_type: str | None = wire("5+", default=None, ignorable=True)
    protocol_name: str | None = wire("5+", default=None, ignorable=True)
    assignment: bytes = b""
