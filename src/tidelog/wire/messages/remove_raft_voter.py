"""RemoveRaftVoter (key 81): take a voter out of the quorum (KIP-853)."""

from tidelog.wire.codec import i16, i32, message, uuid
from tidelog.wire.uuids import ZERO_UUID


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None = ""
    voter_id: i32 = 0
    voter_directory_id: uuid = ZERO_UUID


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
