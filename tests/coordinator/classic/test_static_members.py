"""Static members: an instance id that outlives a process, so that a restart is no rebalance."""

from typing import Any

import pytest

from tests.coordinator.classic.crew import Crew
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.wire.errors import ErrorCode


def crew_of(*instances: str, **more: Any) -> tuple[Crew, list[str]]:
    """A stable group of static members; the first leads."""
    crew = Crew()
    for instance in instances:
        crew.join("ship", instance=instance, **more)
    crew.wait(0)
    crew.settle()
    return crew, list(crew.group.members)


def test_a_static_member_needs_no_id_first() -> None:
    crew, ids = crew_of("one", "two")
    assert ids == ["one-1", "two-2"]
    assert crew.group.static == {"one": "one-1", "two": "two-2"}
    assert [one.group_instance_id for one in crew.records[-1].members] == ["one", "two"]


def test_a_follower_restarts_without_a_rebalance_and_keeps_its_assignment() -> None:
    crew, (leader, former) = crew_of("one", "two")
    answer = crew.answers[crew.join("ship", instance="two")]
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, leader)
    assert (answer.skip_assignment, answer.members) == (False, [])
    assert answer.member_id not in (leader, former)
    assert crew.group.phase is Phase.STABLE
    assert crew.answers[crew.sync(answer.member_id, instance="two")].assignment == former.encode()
    assert {one.member_id for one in crew.records[-1].members} == {leader, answer.member_id}


def test_a_leader_restarts_without_a_rebalance_and_is_told_to_leave_the_assignment_alone() -> None:
    crew, (former, follower) = crew_of("one", "two")
    answer = crew.answers[crew.join("ship", instance="one", version=9)]
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert {one.member_id for one in answer.members} == {answer.member_id, follower}
    assert crew.group.phase is Phase.STABLE
    assert crew.answers[crew.sync(answer.member_id)].assignment == former.encode()


def test_a_leader_of_an_old_version_takes_itself_for_a_follower() -> None:
    crew, (former, _) = crew_of("one", "two")
    answer = crew.answers[crew.join("ship", instance="one", version=8)]
    assert (answer.leader, answer.skip_assignment, answer.members) == (former, False, [])
    assert crew.group.leader == answer.member_id


def test_the_former_self_is_fenced_everywhere() -> None:
    crew, (_, former) = crew_of("one", "two")
    crew.join("ship", instance="two")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert crew.beat(former, instance="two") == fenced
    assert crew.answers[crew.sync(former, instance="two")].error_code == fenced
    assert crew.answers[crew.join("ship", former, instance="two")].error_code == fenced
    left = crew.answers[crew.leave((former, "two"))]
    assert [one.error_code for one in left.members] == [fenced]
    assert crew.beat(former) == ErrorCode.UNKNOWN_MEMBER_ID, "without its instance id it is just nobody"


def test_a_member_that_waits_to_join_is_replaced_and_told_so() -> None:
    crew, (leader, former) = crew_of("one", "two")
    crew.join("ship", leader, instance="one", protocols=(("range", b"new"),))
    waiting = crew.join("ship", former, instance="two", protocols=(("range", b"new"),))
    assert crew.answers[waiting].generation_id == 2
    crew.join("ship", leader, instance="one", protocols=(("range", b"newer"),))
    crew.join("third", version=3)
    waiting = crew.join("ship", instance="two")
    assert crew.answers[waiting].generation_id == 3
    crew.join("third", version=3)
    waiting = crew.join("ship", instance="two")
    replacement = crew.join("ship", instance="two")
    answer = crew.answers[waiting]
    assert (answer.error_code, answer.protocol_name) == (ErrorCode.FENCED_INSTANCE_ID, None)
    assert replacement not in crew.answers


def test_a_member_that_waits_for_its_assignment_is_replaced_and_the_leader_assigns_anew() -> None:
    crew = Crew()
    crew.join("ship", instance="one")
    crew.join("ship", instance="two")
    crew.wait(0)
    leader, former = crew.group.members
    waiting = crew.sync(former, instance="two")
    crew.join("ship", instance="two")
    assert crew.answers[waiting].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert crew.group.phase is Phase.PREPARING
    assert crew.beat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_restart_that_changes_the_protocol_means_a_rebalance() -> None:
    crew, _ = crew_of("one", protocols=(("range", b""), ("sticky", b"")))
    ticket = crew.join("ship", instance="one", protocols=(("sticky", b""),))
    assert (crew.answers[ticket].generation_id, crew.group.protocol) == (2, "sticky")


def test_a_restart_that_could_not_be_written_leaves_the_former_self_in_place() -> None:
    crew, (leader, former) = crew_of("one", "two")
    crew.held = True
    ticket = crew.join("ship", instance="one", session_ms=20_000)
    assert ticket not in crew.answers
    crew.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = crew.answers[ticket]
    assert (answer.error_code, answer.member_id, answer.leader) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", leader)
    assert crew.group.static == {"one": leader, "two": former}
    assert (crew.group.leader, crew.group.members[leader].session_timeout_ms) == (leader, 10_000)
    assert crew.beat(leader, instance="one") == ErrorCode.NONE


def test_a_rebalance_that_begins_before_the_restart_is_written_takes_the_member_along() -> None:
    crew, (leader, _) = crew_of("one", "two")
    crew.held = True
    ticket = crew.join("ship", instance="two")
    crew.join("ship", leader, instance="one", protocols=(("range", b"new"),))
    assert crew.answers[ticket].generation_id == 2, "both have joined"
    crew.commit()
    assert crew.group.phase is Phase.COMPLETING


def test_a_static_member_that_is_away_during_a_rebalance_stays_but_must_sync_in_time() -> None:
    crew, (leader, away) = crew_of("one", "two", session_ms=200_000)
    ticket = crew.join("ship", leader, instance="one", protocols=(("range", b"new"),), session_ms=200_000)
    crew.wait(60_000)
    assert {one.member_id for one in crew.answers[ticket].members} == {leader, away}
    crew.sync(leader, assignments={away: b"kept for it"})
    crew.wait(60_000)
    assert away not in crew.group.members


def test_a_member_that_restarts_before_it_synced_is_waited_for_under_its_new_id() -> None:
    crew = Crew()
    crew.join("ship", instance="one", session_ms=200_000)
    crew.join("ship", instance="two", session_ms=200_000)
    crew.wait(0)
    leader, former = crew.group.members
    crew.sync(leader, assignments={former: b"its part"})
    again = crew.answers[crew.join("ship", instance="two", session_ms=200_000)].member_id
    assert crew.answers[crew.sync(again, instance="two")].assignment == b"its part"
    crew.wait(61_000)
    assert (crew.group.phase, set(crew.group.members)) == (Phase.STABLE, {leader, again})


def test_static_members_die_with_their_session_as_otherscarry_out() -> None:
    crew, (leader, silent) = crew_of("one", "two")
    crew.wait(5000)
    crew.beat(leader)
    crew.wait(5000)
    assert silent not in crew.group.members
    assert "two" not in crew.group.static


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_restarted_member_joins_the_next_rebalance_under_its_new_id(version: int) -> None:
    crew, (leader, _) = crew_of("one", "two")
    answer = crew.answers[crew.join("ship", instance="two", version=version)]
    crew.join("ship", leader, instance="one", protocols=(("range", b"new"),))
    again = crew.join("ship", answer.member_id, instance="two", version=version)
    assert crew.answers[again].generation_id == 2
