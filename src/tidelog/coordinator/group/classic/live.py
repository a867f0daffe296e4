"""A classic group while it is coordinated: its members, its phase, and who waits for what.

The decisions about it are functions of the other files here (`join`, `sync`, `departures`, `rebalance`); this object
keeps the counts that make them cheap. It knows neither time nor answers: moments come in, tickets are only kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.classic.member import NEVER, LiveMember, Protocols, bytes_of
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.phases import IN_GENERATION, TRANSITIONS, Phase
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.coordinator.group.classic.state import ClassicGroup
    from tidelog.env.loop import Timer


class LiveClassicGroup:
    __slots__ = (
        "alarm",
        "alarm_ms",
        "generation",
        "group_id",
        "handed_in",
        "initial_left_ms",
        "join_deadline_ms",
        "joined",
        "leader",
        "members",
        "newcomer",
        "not_before_ms",
        "pending",
        "phase",
        "protocol",
        "protocol_type",
        "said_bytes",
        "since_ms",
        "static",
        "supported",
        "sync_deadline_ms",
        "unsynced",
        "wake_ms",
        "writing",
    )

    def __init__(self, group_id: str, now: Moment) -> None:
        self.group_id = group_id
        self.phase = Phase.EMPTY
        self.since_ms = now.wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, LiveMember] = {}
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending: dict[str, float] = {}
        """Ids that were handed out and not used yet, and when they are forgotten."""
        self.supported: dict[str, int] = {}
        """How many members know a protocol."""
        self.said_bytes = 0
        """What members say about themselves, under all their protocols."""
        self.joined = 0
        """How many members' JoinGroup waits."""
        self.unsynced: set[str] = set()
        """Members of this generation that haven't asked for their assignment."""
        self.handed_in = -1
        """The generation for which the leader handed in an assignment last; it may be on its way to the log."""
        self.initial_left_ms: float | None = None
        """While a group that was empty waits for more members: for how long it may go on waiting after this delay."""
        self.newcomer = False
        """Somebody came during the present initial delay, or was given an id to come with."""
        self.not_before_ms: float = 0
        """The next generation doesn't begin earlier, though all joined: the last one could not be stored."""
        self.join_deadline_ms: float = NEVER
        self.sync_deadline_ms: float = NEVER
        self.wake_ms: float = NEVER
        """No deadline is before this moment."""
        self.writing = 0
        """Records of the group that aren't committed."""
        self.alarm: Timer | None = None
        """The shell's timer, and when it rings."""
        self.alarm_ms: float = NEVER

    @classmethod
    def loaded(cls, group: ClassicGroup, now: Moment) -> LiveClassicGroup:
        """From the log: stable or empty. Sessions begin anew, since heartbeats may have gone elsewhere.

        In an order that every start has: who is answered first, or leads, must not depend on hashes.
        """
        live = cls(group.group_id, now)
        live.since_ms = group.state_timestamp_ms
        live.generation = group.generation
        live.protocol_type = group.protocol_type
        live.protocol = group.protocol
        for _, member in sorted(group.members.items()):
            known = LiveMember.loaded(member, group.protocol)
            live.add(known, group.protocol_type)
            live.expect(known, now)
        if live.members:
            live.phase = Phase.STABLE
            live.leader = group.leader if group.leader in live.members else next(iter(live.members))
        return live

    # ---- phases and deadlines ----

    def enter(self, phase: Phase, now: Moment) -> None:
        assert phase in TRANSITIONS[self.phase], f"{self.group_id}: {self.phase} can't become {phase}"
        self.phase = phase
        self.since_ms = now.wall_ms

    def expect(self, member: LiveMember, now: Moment, within_ms: float | None = None) -> None:
        """The member must be heard of before its session ends, or within another time."""
        member.deadline_ms = now.steady_ms + (member.session_timeout_ms if within_ms is None else within_ms)
        self.wake_by(member.deadline_ms)

    def wake_by(self, deadline_ms: float) -> None:
        if deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms

    def next_deadline_ms(self) -> float:
        """The earliest of all deadlines: for the shell, once the time it woke at is over."""
        sessions = min((member.deadline_ms for member in self.members.values()), default=NEVER)
        pending = min(self.pending.values(), default=NEVER)
        return min(sessions, pending, self.join_deadline_ms, self.sync_deadline_ms)

    # ---- members ----

    def add(self, member: LiveMember, protocol_type: str | None) -> None:
        """A member more; the first one gives the group its protocol type and leads."""
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.static
            self.static[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.pending.pop(member.member_id, None)

    def remove(self, member: LiveMember) -> None:
        """Its requests must have been answered. Where it led, another member does."""
        assert member.joining is None
        assert member.syncing is None
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static[member.instance_id]
        self._count(member.protocols, -1)
        self.unsynced.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: LiveMember, member_id: str) -> LiveMember:
        """A static member under another id, with its assignment, and as leader where it led."""
        assert member.instance_id is not None
        assert member.joining is None
        assert member.syncing is None
        renamed = member.under(member_id)
        del self.members[member.member_id]
        self.members[member_id] = renamed
        self.static[member.instance_id] = member_id
        if member.member_id in self.unsynced:
            self.unsynced.remove(member.member_id)
            self.unsynced.add(member_id)
        if self.leader == member.member_id:
            self.leader = member_id
        return renamed

    def update(
        self, member: LiveMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park(self, member: LiveMember, ticket: object) -> object | None:
        """The member's JoinGroup waits; the ticket of an earlier one that this supersedes, if one waited."""
        superseded = member.joining
        if superseded is None:
            self.joined += 1
        member.joining = ticket
        return superseded

    def unpark(self, member: LiveMember) -> object | None:
        """The ticket of the member's JoinGroup, if one waits: it is about to be answered."""
        ticket = member.joining
        if ticket is not None:
            self.joined -= 1
            member.joining = None
        return ticket

    def check_member(self, member_id: str, instance_id: str | None) -> LiveMember:
        """The member that a request names; KafkaError where there is none, or another has its instance id by now."""
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is not None and holder != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is member {holder} of {self.group_id} by now"
                )
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{self.group_id} has no static member {instance_id}")
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{self.group_id} has no member {member_id}")
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION, f"{self.group_id} is in generation {self.generation}, not {generation}"
            )

    @property
    def all_joined(self) -> bool:
        return self.joined == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The most patient member's."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # ---- protocols ----

    def accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these could work with those who are here."""
        if self.phase is Phase.EMPTY:
            return bool(protocol_type) and bool(protocols)
        everyone = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.supported.get(name, 0) == everyone for name, _ in protocols
        )

    def elect_protocol(self) -> str:
        """Everyone votes for the first of its protocols that all know; the most votes win, the first seen of equals."""
        everyone = len(self.members)
        candidates = {name for name, count in self.supported.items() if count == everyone}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count(self, protocols: Protocols, step: int) -> None:
        self.said_bytes += step * bytes_of(protocols)
        for name, _ in protocols:
            count = self.supported.get(name, 0) + step
            if count:
                self.supported[name] = count
            else:
                del self.supported[name]

    def check_invariants(self) -> None:
        """What holds between any two events; for tests and simulation."""
        members = self.members.values()
        assert self.said_bytes == sum(bytes_of(member.protocols) for member in members)
        assert self.joined == sum(member.joining is not None for member in members)
        assert self.static == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert all(key == member.member_id for key, member in self.members.items())
        assert self.leader in self.members if self.members else self.leader is None
        assert self.unsynced <= self.members.keys()
        assert not self.pending.keys() & self.members.keys()
        known: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                known[name] = known.get(name, 0) + 1
        assert self.supported == known
        assert not members or max(known.values()) == len(members), "no protocol that all know"
        assert self.wake_ms <= self.next_deadline_ms()
        assert self.phase is not Phase.EMPTY or not members
        assert self.phase is Phase.COMPLETING or all(member.syncing is None for member in members)
        assert self.phase is Phase.PREPARING or self.join_deadline_ms == NEVER
        if self.phase in IN_GENERATION:
            assert self.supported.get(self.protocol or "") == len(members) > 0
            assert (self.sync_deadline_ms == NEVER) == (not self.unsynced), "who is late is waited for, and nobody else"
        elif self.phase is not Phase.DEAD:
            assert not self.unsynced
            assert self.sync_deadline_ms == NEVER
        if self.phase is Phase.PREPARING:
            assert self.join_deadline_ms != NEVER, "nothing would end the wait"
