"""A classic group without a broker: requests go in, answers and records come out, time passes when a test says so.

Records are committed at once unless `held`; then `commit` or `fail` decides. Invariants are checked after every event.
"""

from typing import Any

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.classic.decision import ClassicDecision, Purpose
from tidelog.coordinator.group.classic.departures import expire, heartbeat, leave
from tidelog.coordinator.group.classic.join import Join, join
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.outcomes import written
from tidelog.coordinator.group.classic.rebalance import Limits
from tidelog.coordinator.group.classic.replay import group_of
from tidelog.coordinator.group.classic.sync import Sync, sync
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.leave_group import MemberIdentity

BEGIN_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class GroupHarness:
    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits(initial_delay_ms=0)
        self.steady_ms = 1000.0
        self.group = LiveClassicGroup("g", self.now)
        self.answers: dict[Any, Any] = {}
        self.records: list[Any] = []
        """The records that were committed."""
        self.waiting: list[tuple[Entry, Purpose]] = []
        self.held = False
        self._ids = 0
        self._tickets = 0

    @property
    def now(self) -> Moment:
        return Moment(self.steady_ms, BEGIN_MS + int(self.steady_ms))

    def wait(self, ms: float) -> None:
        """Let time pass, deadline after deadline."""
        end = self.steady_ms + ms
        while self.group.wake_ms <= end:
            self.steady_ms = max(self.group.wake_ms, self.steady_ms)
            self.carry_out(expire(self.group, self.limits, self.now))
        self.steady_ms = end

    def restart(self) -> None:
        """Another coordinator takes over with what is committed; nobody who waits is answered."""
        self.waiting.clear()
        self.answers.clear()
        assert self.records, "nothing was ever committed"
        self.group = LiveClassicGroup.loaded(group_of("g", self.records[-1]), self.now)
        self.group.check_invariants()

    # -- requests; what they return is a ticket: `harness.answers[ticket]` is the answer, once it is there

    def join(
        self,
        who: str = "c",
        member_id: str = "",
        *,
        instance: str | None = None,
        version: int = 9,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b""),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> int:
        self._ids += 1
        request = Join(
            ticket=self._ticket(),
            version=version,
            member_id=member_id,
            new_id="" if member_id else f"{instance or who}-{self._ids}",
            instance_id=instance,
            client_id=who,
            client_host="/127.0.0.1",
            protocol_type=protocol_type,
            protocols=protocols,
            rebalance_timeout_ms=rebalance_ms,
            session_timeout_ms=session_ms,
            reason="test",
        )
        self.carry_out(join(self.group, request, self.limits, self.now))
        return self._tickets

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
        protocol: str | None = None,
        protocol_type: str | None = None,
    ) -> int:
        request = Sync(
            ticket=self._ticket(),
            member_id=member_id,
            instance_id=instance,
            generation=self.group.generation if generation is None else generation,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments=assignments or {},
        )
        self.carry_out(sync(self.group, request, self.now))
        return self._tickets

    def beat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        code = heartbeat(self.group, member_id, instance, generation, self.now)
        self.group.check_invariants()
        return code

    def leave(self, *leavers: str | tuple[str, str]) -> int:
        """By member id, or by (member id, instance id)."""
        identities = [
            MemberIdentity(member_id=one)
            if isinstance(one, str)
            else MemberIdentity(member_id=one[0], group_instance_id=one[1])
            for one in leavers
        ]
        ticket = self._ticket()
        self.carry_out(leave(self.group, ticket, identities, self.limits, self.now))
        return ticket

    # -- records

    def commit(self) -> None:
        self._settle(ErrorCode.NONE)

    def fail(self, code: ErrorCode) -> None:
        self._settle(code)

    def _settle(self, code: ErrorCode) -> None:
        waiting, self.waiting = self.waiting, []
        for entry, purpose in waiting:
            if code is ErrorCode.NONE:
                self.records.append(entry.value)
            self.carry_out(written(self.group, purpose, code, self.limits, self.now))

    # -- the usual

    def member(self, who: str, **more: Any) -> str:
        """A new dynamic member whose JoinGroup waits; its id."""
        required = self.answers[self.join(who, **more)]
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self.join(who, required.member_id, **more)
        return required.member_id

    def stable(self, *members: str, **more: Any) -> list[str]:
        """A stable group of new members; their ids, the leader's first."""
        ids = [self.member(who, **more) for who in members]
        self.wait(self.limits.initial_delay_ms)
        self.settle()
        return ids

    def settle(self) -> None:
        """Everyone syncs; each is assigned its own id."""
        everyone = list(self.group.members)
        assignments = {member_id: member_id.encode() for member_id in everyone}
        for member_id in everyone:
            self.sync(member_id, assignments=assignments if member_id == self.group.leader else None)

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def carry_out(self, decision: ClassicDecision) -> None:
        records, (answers, purpose) = decision
        for answer in answers:
            assert answer.ticket not in self.answers, "answered twice"
            self.answers[answer.ticket] = answer.response
        assert len(records) == (purpose is not None), "a record has a purpose"
        if purpose is not None:
            self.waiting.append((records[0], purpose))
        self.group.check_invariants()
        if not self.held:
            self.commit()
