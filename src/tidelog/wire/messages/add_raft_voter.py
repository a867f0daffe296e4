"""AddRaftVoter (key 80): make an observer that has caught up a voter (KIP-853).

v1 may be answered before the new set of voters is committed (KIP-1186).
"""

from tidelog.wire.codec import i16, i32, message, struct, u16, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class Listener:
    name: str = ""
    host: str = ""
    port: u16 = 0


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: str | None = ""
    timeout_ms: i32 = 0
    voter_id: i32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = wire(factory=list)
    ack_when_committed: bool = wire("1+", default=True)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
