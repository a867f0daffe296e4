"""JoinGroup (key 11): enter a group, or enter its next generation.

v1 a rebalance timeout of its own; v4 MEMBER_ID_REQUIRED first (KIP-394); v5 static members (KIP-345); v6 flexible; v7
the protocol type in the answer; v8 a reason (KIP-800); v9 the leader may be told to skip the assignment (KIP-814).
"""

from tidelog.wire.codec import i16, i32, message, struct, wire


@struct
class JoinGroupRequestProtocol:
    name: str = ""
    metadata: bytes = b""


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = ""
    session_timeout_ms: i32 = 0
    rebalance_timeout_ms: i32 = wire("1+", default=-1, ignorable=True)
    member_id: str = ""
    group_instance_id: str | None = wire("5+", default=None)
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = wire(factory=list)
    reason: str | None = wire("8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = ""
    group_instance_id: str | None = wire("5+", default=None, ignorable=True)
    metadata: bytes = b""


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: i32 = wire("2+", default=0, ignorable=True)
    error_code: i16 = 0
    generation_id: i32 = -1
    protocol_type: str | None = wire("7+", default=None, ignorable=True)
    protocol_name: str | None = wire(default="", nullable="7+")
    leader: str = ""
    skip_assignment: bool = wire("9+", default=False)
    member_id: str = ""
    members: list[JoinGroupResponseMember] = wire(factory=list)
