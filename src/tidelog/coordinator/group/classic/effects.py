"""What a decision about a classic group asks of the shell: answers to give, records to write.

Deadlines are no effects: the group says when it wants to be woken (`LiveClassicGroup.wake_ms`).
"""

from typing import NamedTuple

from tidelog.coordinator.group.classic.member import LiveMember
from tidelog.wire.messages.heartbeat import HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupResponse
from tidelog.wire.records.groups import GroupMetadataValue

Response = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse


class Moment(NamedTuple):
    """Now, on both clocks: deadlines are measured, records are dated."""

    steady_ms: float
    wall_ms: int


class Answer(NamedTuple):
    """`ticket` is what the request came with; the group only keeps it."""

    ticket: object
    response: Response


class Created(NamedTuple):
    """The group is new: its first record."""


class Emptied(NamedTuple):
    """The last member is gone; whoever asked for it hears of it when it is committed."""

    answer: Answer | None


class Assigned(NamedTuple):
    """The leader's assignment, for those of this generation."""

    generation: int
    assignments: dict[str, bytes]


class Replaced(NamedTuple):
    """A static member came back under another id, and the generation goes on."""

    ticket: object
    former: LiveMember
    member_id: str
    former_leader: str | None
    may_skip: bool
    """The client knows that a leader can be told to leave the assignment as it is."""


Purpose = Created | Emptied | Assigned | Replaced


class Write(NamedTuple):
    """A record of the group; the outcome comes back with its purpose."""

    value: GroupMetadataValue
    purpose: Purpose


Effect = Answer | Write
