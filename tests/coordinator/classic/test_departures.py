"""Who leaves a classic group, is no longer heard of, or finds another coordinator."""

from tests.coordinator.classic.harness import GroupHarness
from tidelog.coordinator.group.classic.outcomes import bury
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records.groups import GroupMetadataValue


def test_a_member_that_leaves_means_a_rebalance_for_the_others() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable("a", "b")
    answer = harness.answers[harness.leave(leader)]
    assert [(one.member_id, one.error_code) for one in answer.members] == [(leader, 0)]
    assert harness.beat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    ticket = harness.join("b", follower)
    assert (harness.answers[ticket].generation_id, harness.answers[ticket].leader) == (2, follower)


def test_the_last_one_leaves_an_empty_group_with_a_record_that_says_so() -> None:
    harness = GroupHarness()
    (last,) = harness.stable("a")
    harness.held = True
    ticket = harness.leave(last)
    assert ticket not in harness.answers, "it leaves for good once that is committed"
    harness.commit()
    assert harness.answers[ticket].error_code == 0
    since = harness.group.since_ms
    assert harness.records[-1] == GroupMetadataValue(
        protocol_type="consumer", generation=2, protocol=None, leader=None, current_state_timestamp=since
    )


def test_a_leave_that_could_not_be_written_is_told_as_an_error() -> None:
    harness = GroupHarness()
    (last,) = harness.stable("a")
    harness.held = True
    ticket = harness.leave(last)
    harness.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert harness.answers[ticket].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.group.phase is Phase.EMPTY


def test_many_leave_at_once_each_with_its_result() -> None:
    harness = GroupHarness()
    harness.join("ship", instance="one")
    harness.join("ship", instance="two")
    harness.wait(0)
    harness.settle()
    dynamic = harness.member("c")
    one, two, _ = harness.group.members
    answer = harness.answers[
        harness.leave(("", "one"), (two, "one"), ("", "nobody"), dynamic, "stranger", ("stranger", "two"))
    ]
    assert [(member.group_instance_id, ErrorCode(member.error_code)) for member in answer.members] == [
        ("one", ErrorCode.NONE),
        ("one", ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        (None, ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("two", ErrorCode.FENCED_INSTANCE_ID),
    ]
    assert list(harness.group.members) == [two]
    assert one not in harness.group.members


def test_an_id_that_was_only_handed_out_can_be_given_back() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a")
    pending = harness.answers[harness.join("b")].member_id
    ticket = harness.join("a", a)
    assert ticket not in harness.answers
    assert [one.error_code for one in harness.answers[harness.leave(pending)].members] == [0]
    assert harness.answers[ticket].generation_id == 2


def test_a_member_that_leaves_while_its_join_waits_is_answered() -> None:
    harness = GroupHarness()
    harness.stable("a")
    ticket = harness.join("b", version=3)
    harness.leave(list(harness.group.members)[-1])
    assert harness.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_while_its_sync_waits_is_answered() -> None:
    harness = GroupHarness()
    harness.member("a")
    follower = harness.member("b")
    harness.wait(0)
    ticket = harness.sync(follower)
    harness.leave(follower)
    assert harness.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member_and_silence_ends_its_session() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    for _ in range(20):
        harness.wait(3000)
        assert harness.beat(a) == harness.beat(b) == ErrorCode.NONE
    for _ in range(3):
        harness.wait(3000)
        harness.beat(a)
    assert harness.group.phase is Phase.STABLE
    harness.wait(1000)
    assert (harness.beat(a), harness.beat(b)) == (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)


def test_heartbeats_of_a_former_generation_are_refused() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    harness.join("a", a)
    harness.join("b", b)
    assert harness.beat(b, 1) == ErrorCode.ILLEGAL_GENERATION
    assert harness.beat(b, 2) == ErrorCode.NONE, "while it waits for its assignment too"


def test_when_all_are_silent_the_group_is_empty() -> None:
    harness = GroupHarness()
    harness.stable("a", "b", "c")
    harness.wait(10_000)
    assert (harness.group.phase, harness.group.generation, harness.records[-1].members) == (Phase.EMPTY, 2, [])


def test_a_silent_member_holds_up_a_rebalance_for_no_longer_than_its_session() -> None:
    harness = GroupHarness()
    a, silent = harness.stable("a", "b")
    ticket = harness.join("a", a)
    harness.wait(10_000)
    assert harness.answers[ticket].generation_id == 2
    assert silent not in harness.group.members


def test_after_a_restart_members_have_a_whole_session_to_be_heard() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    harness.wait(9000)
    harness.restart()
    assert (harness.group.phase, harness.group.generation, harness.group.leader) == (Phase.STABLE, 1, a)
    harness.wait(9999)
    assert harness.beat(a) == ErrorCode.NONE
    harness.wait(1)
    assert harness.beat(b) == ErrorCode.UNKNOWN_MEMBER_ID


def test_after_a_restart_everyone_is_given_its_assignment_again() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    harness.restart()
    assert [harness.answers[harness.sync(member)].assignment for member in (a, b)] == [a.encode(), b.encode()]


def test_a_generation_that_was_never_assigned_is_gone_with_its_coordinator() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    harness.join("a", a)
    harness.join("b", b)
    assert harness.group.generation == 2
    harness.restart()
    assert harness.group.generation == 1
    assert harness.answers[harness.sync(a, generation=2)].error_code == ErrorCode.ILLEGAL_GENERATION


def test_whoever_waits_is_told_when_the_coordinator_moves() -> None:
    harness = GroupHarness()
    harness.stable("a")
    joining = harness.join("b", version=3)
    harness.carry_out(bury(harness.group, ErrorCode.NOT_COORDINATOR, harness.now))
    assert harness.answers[joining].error_code == ErrorCode.NOT_COORDINATOR

    other = GroupHarness()
    other.member("a")
    follower = other.member("b")
    other.wait(0)
    syncing = other.sync(follower)
    other.carry_out(bury(other.group, ErrorCode.NOT_COORDINATOR, other.now))
    assert other.answers[syncing].error_code == ErrorCode.NOT_COORDINATOR
