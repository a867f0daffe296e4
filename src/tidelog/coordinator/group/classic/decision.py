"""What a decision about a classic group is: a record, or none, and who is to be told what.

Of a classic group the log holds what the next coordinator begins with; that changes when the record is replayed. Who
waits, in which phase and until when is live: the group itself keeps that (`live.LiveClassicGroup`), and a decision
moves it. What leaves the group, records and answers, is in the value that a decision returns, and nowhere else.

Deadlines aren't in it: the group says when it wants to be woken (`LiveClassicGroup.wake_ms`).
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.classic.member import LiveMember
from tidelog.machine.decision import Decision
from tidelog.wire.messages.heartbeat import HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupResponse

Response = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse


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


class Outcome(NamedTuple):
    """What is to be done beside writing the record."""

    answers: tuple[Answer, ...] = ()
    """Given at once, in this order: none of them depends on the record."""
    purpose: Purpose | None = None
    """What the record is for: it comes back with what became of the record, and that is the next decision."""


ClassicDecision: TypeAlias = Decision[Entry, Outcome]

NOTHING: ClassicDecision = Decision((), Outcome())


def tell(*answers: Answer) -> ClassicDecision:
    return Decision((), Outcome(answers))


def write(entry: Entry, purpose: Purpose) -> ClassicDecision:
    return Decision((entry,), Outcome((), purpose))


def after(answers: Iterable[Answer], decision: ClassicDecision) -> ClassicDecision:
    """The decision, with answers that are given before its own."""
    records, (own, purpose) = decision
    return Decision(records, Outcome((*answers, *own), purpose))


def together(first: ClassicDecision, then: ClassicDecision) -> ClassicDecision:
    """Two decisions of one event, as one. At most one of them writes: a group's record holds it whole."""
    if not first.records:
        return after(first.answer.answers, then)
    assert not then.records, "an event writes one record"
    return Decision(first.records, Outcome((*first.answer.answers, *then.answer.answers), first.answer.purpose))
