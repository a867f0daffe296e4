"""BrokerHeartbeat (key 63): a broker is alive, and wants in, out, or to stop.

v1 tells directories that went offline (KIP-858), v2 those that are cordoned (KIP-1066): null until recovery is over.
"""

from tidelog.wire.codec import i16, i32, i64, message, uuid, wire


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    broker_id: i32 = 0
    broker_epoch: i64 = -1
    current_metadata_offset: i64 = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: list[uuid] = wire("1+", factory=list, tag=0)
    cordoned_log_dirs: list[uuid] | None = wire("2+", default=None, tag=1)


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
