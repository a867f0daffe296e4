"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

v1 key types and error messages; v3 flexible; v4 many keys in one request (KIP-699); v6 share groups (KIP-932).
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, wire


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = wire("0-3", default="")
    key_type: i8 = wire("1+", default=0)
    coordinator_keys: list[str] = wire("4+", factory=list)


@struct
class Coordinator:
    key: str = ""
    node_id: i32 = 0
    host: str = ""
    port: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: i32 = wire("1+", default=0, ignorable=True)
    error_code: i16 = wire("0-3", default=0)
    error_message: str | None = wire("1-3", default="", ignorable=True)
    node_id: i32 = wire("0-3", default=0)
    host: str = wire("0-3", default="")
    port: i32 = wire("0-3", default=0)
    coordinators: list[Coordinator] = wire("4+", factory=list)
