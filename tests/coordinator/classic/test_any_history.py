"""Whatever members and coordinators do: what no member of a classic group may ever see.

Members join, sync, beat, leave, vanish and restart in any order, records are committed late, fail, or die with their
coordinator. Checked: one leader and one protocol a generation; generations that don't fall; an assignment is that of
its generation, from its leader; what was handed out is in the log, word for word.
"""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.coordinator.classic.harness import GroupHarness
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.rebalance import Limits
from tidelog.wire.errors import ErrorCode

PROTOCOLS = (
    (("range", b""),),
    (("range", b"more"), ("sticky", b"")),
    (("sticky", b""), ("range", b"")),
    (("sticky", b"other"),),
)
FAILURES = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]


class Life(RuleBasedStateMachine):
    """One group; `knows` is what each member was last told: its id, its generation, and whether it leads."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = GroupHarness(Limits(initial_delay_ms=50, members_max=6))
        self.harness.held = True
        self.life = 0
        self.tickets: dict[int, tuple[str, Any]] = {}
        self.knows: dict[str, tuple[str, int]] = {}
        """By member id: the instance id ("" for dynamic members) and the generation it was told of."""
        self.former: list[tuple[str, str, int]] = []
        """Member id, instance id and an earlier generation: requests that come late."""
        self.leaders: dict[tuple[int, int], tuple[str, str]] = {}
        """By life of the coordinator and generation: the leader and the protocol that members were told."""
        self.handed_out: dict[int, str] = {}
        """By generation: who assigned what members were given."""
        self.signed = 0
        self.seen = 0
        self.group = self.harness.group

    # -- what members do

    @rule(who=st.sampled_from("abc"), version=st.sampled_from([3, 5, 9]), offered=st.sampled_from(PROTOCOLS))
    def a_new_member_joins(self, who: str, version: int, offered: Any) -> None:
        self._keep(self.harness.join(who, version=version, protocols=offered), "join", "")

    @rule(instance=st.sampled_from(["one", "two"]), version=st.sampled_from([5, 9]), offered=st.sampled_from(PROTOCOLS))
    def a_static_member_starts(self, instance: str, version: int, offered: Any) -> None:
        self._keep(self.harness.join("s", instance=instance, version=version, protocols=offered), "join", instance)

    @precondition(lambda self: self.knows)
    @rule(data=st.data(), offered=st.sampled_from(PROTOCOLS))
    def a_member_joins_again(self, data: st.DataObject, offered: Any) -> None:
        member_id, (instance, _) = data.draw(st.sampled_from(sorted(self.knows.items())))
        self._keep(self.harness.join("x", member_id, instance=instance or None, protocols=offered), "join", instance)

    @precondition(lambda self: self.knows)
    @rule(data=st.data())
    def a_member_syncs(self, data: st.DataObject) -> None:
        """A leader assigns to all that it knows of, and signs with its id and generation; no two are alike."""
        member_id, (instance, generation) = data.draw(st.sampled_from(sorted(self.knows.items())))
        self._sync(member_id, instance, generation)

    def _sync(self, member_id: str, instance: str, generation: int) -> None:
        self.signed += 1
        signed = f"{self.life}:{generation}:{member_id}#{self.signed}".encode()
        parts = dict.fromkeys(self.harness.group.members, signed)
        ticket = self.harness.sync(member_id, generation, parts, instance=instance or None)
        self._keep(ticket, "sync", (member_id, generation))

    @precondition(lambda self: self.harness.group.members)
    @rule(offered=st.sampled_from(PROTOCOLS[:3]))
    def everyone_joins_again(self, offered: Any) -> None:
        for member in list(self.harness.group.members.values()):
            if member.member_id in self.knows:
                ticket = self.harness.join("x", member.member_id, instance=member.instance_id, protocols=offered)
                self._keep(ticket, "join", member.instance_id or "")

    @precondition(lambda self: self.harness.group.phase is Phase.COMPLETING)
    @rule(commit=st.booleans(), times=st.sampled_from([1, 1, 2]))
    def everyone_syncs(self, commit: bool, times: int) -> None:
        generation = self.harness.group.generation
        for member in list(self.harness.group.members.values()) * times:
            self._sync(member.member_id, member.instance_id or "", generation)
        if commit:
            self.harness.commit()

    @precondition(lambda self: self.former)
    @rule(data=st.data())
    def a_sync_comes_late(self, data: st.DataObject) -> None:
        """Of an earlier generation, by whoever was in it."""
        self._sync(*data.draw(st.sampled_from(self.former)))

    @precondition(lambda self: self.knows)
    @rule(data=st.data())
    def a_member_beats(self, data: st.DataObject) -> None:
        member_id, (instance, generation) = data.draw(st.sampled_from(sorted(self.knows.items())))
        code = self.harness.beat(member_id, generation, instance or None)
        if code is ErrorCode.NONE:
            assert generation == self.harness.group.generation

    @precondition(lambda self: self.knows)
    @rule(data=st.data())
    def a_member_leaves(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.knows)))
        self.harness.leave(member_id)
        assert member_id not in self.harness.group.members

    @precondition(lambda self: self.knows)
    @rule(data=st.data())
    def a_member_vanishes(self, data: st.DataObject) -> None:
        del self.knows[data.draw(st.sampled_from(sorted(self.knows)))]

    # -- what happens to the coordinator

    @rule(ms=st.sampled_from([10, 50, 50, 3000, 11_000, 61_000]))
    def time_passes(self, ms: int) -> None:
        self.harness.wait(ms)

    @precondition(lambda self: self.harness.waiting)
    @rule(code=st.sampled_from([ErrorCode.NONE] * 4 + FAILURES))
    def records_are_committed_or_fail(self, code: ErrorCode) -> None:
        """An append that fails does so before any other follows it."""
        if len(self.harness.waiting) == 1 or not code:
            self.harness.fail(code)

    @precondition(lambda self: self.harness.records)
    @rule()
    def another_coordinator_takes_over(self) -> None:
        self.harness.restart()
        self.tickets.clear()
        self.life += 1
        assert self.harness.group.phase in (Phase.STABLE, Phase.EMPTY)

    # -- what members see

    def _keep(self, ticket: int, kind: str, about: Any) -> None:
        self.tickets[ticket] = (kind, about)

    @invariant()
    def what_members_were_told_is_true(self) -> None:
        for ticket in [ticket for ticket in self.tickets if ticket in self.harness.answers]:
            kind, about = self.tickets.pop(ticket)
            answer = self.harness.answers[ticket]
            if kind == "join":
                self._joined(answer, about)
            elif answer.error_code == 0:
                assert about[1] == self.harness.group.generation, "an assignment for a former generation"
                self._synced(answer, *about)

    def _joined(self, answer: Any, instance: str) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.knows[answer.member_id] = (instance, -1)
        if answer.error_code:
            return
        if self.knows.get(answer.member_id, ("", -1))[1] > answer.generation_id:
            assert self.life, "a generation fell under one coordinator"
        self.knows[answer.member_id] = (instance, answer.generation_id)
        if answer.generation_id > 1:
            self.former.append((answer.member_id, instance, answer.generation_id - 1))
        named = self.leaders.setdefault((self.life, answer.generation_id), (answer.leader, answer.protocol_name))
        assert named[1] == answer.protocol_name
        assert bool(answer.members) <= (answer.leader == answer.member_id), "only a leader is told of the others"
        if answer.leader != named[0]:
            assert answer.skip_assignment or not answer.members, "a second leader that may assign"

    def _synced(self, answer: Any, member_id: str, generation: int) -> None:
        assert any(record.generation >= generation for record in self.harness.records), "nothing is in the log"
        if not answer.assignment:
            return  # the leader didn't know of it
        life, assigned_in, leader = answer.assignment.decode().split(":", 2)
        assert int(assigned_in) == generation, f"{member_id} was given the assignment of another generation"
        assert self.handed_out.setdefault(generation, f"{life}:{leader}") == f"{life}:{leader}", "two assignments"

    @invariant()
    def what_is_handed_out_is_what_the_log_holds(self) -> None:
        group = self.harness.group
        if group.phase is Phase.STABLE and not self.harness.waiting:
            stored = {member.member_id: member.assignment for member in self.harness.records[-1].members}
            assert stored == {member.member_id: member.assignment for member in group.members.values()}

    @invariant()
    def the_groups_own_rules_hold(self) -> None:
        self.harness.group.check_invariants()

    @invariant()
    def generations_do_not_fall(self) -> None:
        group = self.harness.group
        if group is self.group:
            assert group.generation >= self.seen
        else:
            assert group.generation >= max(self.handed_out, default=0), "what was handed out is forgotten"
        self.group, self.seen = group, group.generation

    def teardown(self) -> None:
        """In the end everyone who waits is answered: no more requests, only time."""
        self.harness.held = False
        self.harness.commit()
        self.harness.wait(10 * 60_000)
        assert not self.tickets.keys() - self.harness.answers.keys(), "somebody waits for ever"
        assert self.harness.group.phase is Phase.EMPTY


Life.TestCase.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyHistory = Life.TestCase
