"""A classic group as the log holds it: what the next coordinator begins with.

Who waits, for what and until when isn't here: that is `classic/live.py`.
"""

from dataclasses import dataclass

from immutables import Map


@dataclass(frozen=True, slots=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """What the member said about itself under the group's protocol."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    group_id: str
    protocol_type: str | None
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """When the group came to its present phase; -1 in records of old versions."""
    members: Map[str, ClassicMember]
