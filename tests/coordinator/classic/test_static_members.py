"""Static members: an instance id that outlives a process, so that a restart is no rebalance."""

from typing import Any

import pytest

from tests.coordinator.classic.harness import GroupHarness
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.wire.errors import ErrorCode


def crew_of(*instances: str, **more: Any) -> tuple[GroupHarness, list[str]]:
    """A stable group of static members; the first leads."""
    harness = GroupHarness()
    for instance in instances:
        harness.join("ship", instance=instance, **more)
    harness.wait(0)
    harness.settle()
    return harness, list(harness.group.members)


def test_a_static_member_needs_no_id_first() -> None:
    harness, ids = crew_of("one", "two")
    assert ids == ["one-1", "two-2"]
    assert harness.group.static == {"one": "one-1", "two": "two-2"}
    assert [one.group_instance_id for one in harness.records[-1].members] == ["one", "two"]


def test_a_follower_restarts_without_a_rebalance_and_keeps_its_assignment() -> None:
    harness, (leader, former) = crew_of("one", "two")
    answer = harness.answers[harness.join("ship", instance="two")]
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, leader)
    assert (answer.skip_assignment, answer.members) == (False, [])
    assert answer.member_id not in (leader, former)
    assert harness.group.phase is Phase.STABLE
    assert harness.answers[harness.sync(answer.member_id, instance="two")].assignment == former.encode()
    assert {one.member_id for one in harness.records[-1].members} == {leader, answer.member_id}


def test_a_leader_restarts_without_a_rebalance_and_is_told_to_leave_the_assignment_alone() -> None:
    harness, (former, follower) = crew_of("one", "two")
    answer = harness.answers[harness.join("ship", instance="one", version=9)]
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert {one.member_id for one in answer.members} == {answer.member_id, follower}
    assert harness.group.phase is Phase.STABLE
    assert harness.answers[harness.sync(answer.member_id)].assignment == former.encode()


def test_a_leader_of_an_old_version_takes_itself_for_a_follower() -> None:
    harness, (former, _) = crew_of("one", "two")
    answer = harness.answers[harness.join("ship", instance="one", version=8)]
    assert (answer.leader, answer.skip_assignment, answer.members) == (former, False, [])
    assert harness.group.leader == answer.member_id


def test_the_former_self_is_fenced_everywhere() -> None:
    harness, (_, former) = crew_of("one", "two")
    harness.join("ship", instance="two")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert harness.beat(former, instance="two") == fenced
    assert harness.answers[harness.sync(former, instance="two")].error_code == fenced
    assert harness.answers[harness.join("ship", former, instance="two")].error_code == fenced
    left = harness.answers[harness.leave((former, "two"))]
    assert [one.error_code for one in left.members] == [fenced]
    assert harness.beat(former) == ErrorCode.UNKNOWN_MEMBER_ID, "without its instance id it is just nobody"


def test_a_member_that_waits_to_join_is_replaced_and_told_so() -> None:
    harness, (leader, former) = crew_of("one", "two")
    harness.join("ship", leader, instance="one", protocols=(("range", b"new"),))
    waiting = harness.join("ship", former, instance="two", protocols=(("range", b"new"),))
    assert harness.answers[waiting].generation_id == 2
    harness.join("ship", leader, instance="one", protocols=(("range", b"newer"),))
    harness.join("third", version=3)
    waiting = harness.join("ship", instance="two")
    assert harness.answers[waiting].generation_id == 3
    harness.join("third", version=3)
    waiting = harness.join("ship", instance="two")
    replacement = harness.join("ship", instance="two")
    answer = harness.answers[waiting]
    assert (answer.error_code, answer.protocol_name) == (ErrorCode.FENCED_INSTANCE_ID, None)
    assert replacement not in harness.answers


def test_a_member_that_waits_for_its_assignment_is_replaced_and_the_leader_assigns_anew() -> None:
    harness = GroupHarness()
    harness.join("ship", instance="one")
    harness.join("ship", instance="two")
    harness.wait(0)
    leader, former = harness.group.members
    waiting = harness.sync(former, instance="two")
    harness.join("ship", instance="two")
    assert harness.answers[waiting].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert harness.group.phase is Phase.PREPARING
    assert harness.beat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_restart_that_changes_the_protocol_means_a_rebalance() -> None:
    harness, _ = crew_of("one", protocols=(("range", b""), ("sticky", b"")))
    ticket = harness.join("ship", instance="one", protocols=(("sticky", b""),))
    assert (harness.answers[ticket].generation_id, harness.group.protocol) == (2, "sticky")


def test_a_restart_that_could_not_be_written_leaves_the_former_self_in_place() -> None:
    harness, (leader, former) = crew_of("one", "two")
    harness.held = True
    ticket = harness.join("ship", instance="one", session_ms=20_000)
    assert ticket not in harness.answers
    harness.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = harness.answers[ticket]
    assert (answer.error_code, answer.member_id, answer.leader) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", leader)
    assert harness.group.static == {"one": leader, "two": former}
    assert (harness.group.leader, harness.group.members[leader].session_timeout_ms) == (leader, 10_000)
    assert harness.beat(leader, instance="one") == ErrorCode.NONE


def test_a_rebalance_that_begins_before_the_restart_is_written_takes_the_member_along() -> None:
    harness, (leader, _) = crew_of("one", "two")
    harness.held = True
    ticket = harness.join("ship", instance="two")
    harness.join("ship", leader, instance="one", protocols=(("range", b"new"),))
    assert harness.answers[ticket].generation_id == 2, "both have joined"
    harness.commit()
    assert harness.group.phase is Phase.COMPLETING


def test_a_static_member_that_is_away_during_a_rebalance_stays_but_must_sync_in_time() -> None:
    harness, (leader, away) = crew_of("one", "two", session_ms=200_000)
    ticket = harness.join("ship", leader, instance="one", protocols=(("range", b"new"),), session_ms=200_000)
    harness.wait(60_000)
    assert {one.member_id for one in harness.answers[ticket].members} == {leader, away}
    harness.sync(leader, assignments={away: b"kept for it"})
    harness.wait(60_000)
    assert away not in harness.group.members


def test_a_member_that_restarts_before_it_synced_is_waited_for_under_its_new_id() -> None:
    harness = GroupHarness()
    harness.join("ship", instance="one", session_ms=200_000)
    harness.join("ship", instance="two", session_ms=200_000)
    harness.wait(0)
    leader, former = harness.group.members
    harness.sync(leader, assignments={former: b"its part"})
    again = harness.answers[harness.join("ship", instance="two", session_ms=200_000)].member_id
    assert harness.answers[harness.sync(again, instance="two")].assignment == b"its part"
    harness.wait(61_000)
    assert (harness.group.phase, set(harness.group.members)) == (Phase.STABLE, {leader, again})


def test_static_members_die_with_their_session_as_others_do() -> None:
    harness, (leader, silent) = crew_of("one", "two")
    harness.wait(5000)
    harness.beat(leader)
    harness.wait(5000)
    assert silent not in harness.group.members
    assert "two" not in harness.group.static


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_restarted_member_joins_the_next_rebalance_under_its_new_id(version: int) -> None:
    harness, (leader, _) = crew_of("one", "two")
    answer = harness.answers[harness.join("ship", instance="two", version=version)]
    harness.join("ship", leader, instance="one", protocols=(("range", b"new"),))
    again = harness.join("ship", answer.member_id, instance="two", version=version)
    assert harness.answers[again].generation_id == 2


def test_a_leader_that_is_away_during_a_rebalance_leaves_the_lead_to_who_joined() -> None:
    harness, (away, _) = crew_of("one", "two", session_ms=600_000)
    (third,) = [harness.answers[harness.join("c")].member_id]
    harness.join("c", third)
    joined = harness.join("ship", "two-2", instance="two")
    harness.wait(60_000)
    answer = harness.answers[joined]
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 2, "two-2")
    assert {one.member_id for one in answer.members} == {away, "two-2", third}


def test_a_static_group_that_nobody_joined_has_a_whole_rebalance_timeout_again() -> None:
    harness, _ = crew_of("one", "two", session_ms=600_000)
    gone = harness.answers[harness.join("c")].member_id
    harness.join("c", gone)
    harness.leave(gone)
    harness.wait(60_000)
    assert harness.group.phase is Phase.PREPARING, "nobody came"
    harness.wait(30_000)
    joined = harness.join("ship", "two-2", instance="two")
    harness.wait(29_000)
    assert joined not in harness.answers, "the other one has its time"
    harness.wait(1000)
    assert harness.answers[joined].leader == "two-2"


def test_a_restart_that_is_written_while_others_are_still_to_join_waits_for_them_too() -> None:
    harness, (leader, _, third) = crew_of("one", "two", "three")
    harness.held = True
    ticket = harness.join("ship", instance="two")
    harness.join("ship", leader, instance="one", protocols=(("range", b"new"),))
    harness.commit()
    assert ticket not in harness.answers, "the generation that it was written in is over"
    harness.join("ship", third, instance="three")
    assert harness.answers[ticket].generation_id == 2


def test_a_restarted_member_that_leaves_before_its_restart_is_written_is_answered_once() -> None:
    harness, (leader, _) = crew_of("one", "two")
    harness.held = True
    ticket = harness.join("ship", instance="two")
    (again,) = set(harness.group.members) - {leader}
    harness.leave((again, "two"))
    harness.commit()
    assert harness.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID
