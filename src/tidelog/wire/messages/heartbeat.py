"""Heartbeat (key 12): a member of a classic group is alive, and asks whether it must join again.

v3 static members; v4 flexible.
"""

from tidelog.wire.codec import i16, i32, message, wire


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = ""
    generation_id: i32 = 0
    member_id: str = ""
    group_instance_id: str | None = wire("3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: i32 = wire("1+", default=0, ignorable=True)
    error_code: i16 = 0
