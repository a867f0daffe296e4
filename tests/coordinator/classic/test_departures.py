"""Who leaves a classic group, is no longer heard of, or finds another coordinator."""

from tests.coordinator.classic.crew import Crew
from tidelog.coordinator.group.classic.outcomes import bury
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records.groups import GroupMetadataValue


def test_a_member_that_leaves_means_a_rebalance_for_the_others() -> None:
    crew = Crew()
    leader, follower = crew.stable("a", "b")
    answer = crew.answers[crew.leave(leader)]
    assert [(one.member_id, one.error_code) for one in answer.members] == [(leader, 0)]
    assert crew.beat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    ticket = crew.join("b", follower)
    assert (crew.answers[ticket].generation_id, crew.answers[ticket].leader) == (2, follower)


def test_the_last_one_leaves_an_empty_group_with_a_record_that_says_so() -> None:
    crew = Crew()
    (last,) = crew.stable("a")
    crew.held = True
    ticket = crew.leave(last)
    assert ticket not in crew.answers, "it leaves for good once that is committed"
    crew.commit()
    assert crew.answers[ticket].error_code == 0
    since = crew.group.since_ms
    assert crew.records[-1] == GroupMetadataValue(
        protocol_type="consumer", generation=2, protocol=None, leader=None, current_state_timestamp=since
    )


def test_a_leave_that_could_not_be_written_is_told_as_an_error() -> None:
    crew = Crew()
    (last,) = crew.stable("a")
    crew.held = True
    ticket = crew.leave(last)
    crew.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert crew.answers[ticket].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert crew.group.phase is Phase.EMPTY


def test_many_leave_at_once_each_with_its_result() -> None:
    crew = Crew()
    crew.join("ship", instance="one")
    crew.join("ship", instance="two")
    crew.wait(0)
    crew.settle()
    dynamic = crew.member("c")
    one, two, _ = crew.group.members
    answer = crew.answers[
        crew.leave(("", "one"), (two, "one"), ("", "nobody"), dynamic, "stranger", ("stranger", "two"))
    ]
    assert [(member.group_instance_id, ErrorCode(member.error_code)) for member in answer.members] == [
        ("one", ErrorCode.NONE),
        ("one", ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        (None, ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("two", ErrorCode.FENCED_INSTANCE_ID),
    ]
    assert list(crew.group.members) == [two]
    assert one not in crew.group.members


def test_an_id_that_was_only_handed_out_can_be_given_back() -> None:
    crew = Crew()
    (a,) = crew.stable("a")
    pending = crew.answers[crew.join("b")].member_id
    ticket = crew.join("a", a)
    assert ticket not in crew.answers
    assert [one.error_code for one in crew.answers[crew.leave(pending)].members] == [0]
    assert crew.answers[ticket].generation_id == 2


def test_a_member_that_leaves_while_its_join_waits_is_answered() -> None:
    crew = Crew()
    crew.stable("a")
    ticket = crew.join("b", version=3)
    crew.leave(list(crew.group.members)[-1])
    assert crew.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_while_its_sync_waits_is_answered() -> None:
    crew = Crew()
    crew.member("a")
    follower = crew.member("b")
    crew.wait(0)
    ticket = crew.sync(follower)
    crew.leave(follower)
    assert crew.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member_and_silence_ends_its_session() -> None:
    crew = Crew()
    a, b = crew.stable("a", "b")
    for _ in range(20):
        crew.wait(3000)
        assert crew.beat(a) == crew.beat(b) == ErrorCode.NONE
    for _ in range(3):
        crew.wait(3000)
        crew.beat(a)
    assert crew.group.phase is Phase.STABLE
    crew.wait(1000)
    assert (crew.beat(a), crew.beat(b)) == (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)


def test_heartbeats_of_a_former_generation_are_refused() -> None:
    crew = Crew()
    a, b = crew.stable("a", "b")
    crew.join("a", a)
    crew.join("b", b)
    assert crew.beat(b, 1) == ErrorCode.ILLEGAL_GENERATION
    assert crew.beat(b, 2) == ErrorCode.NONE, "while it waits for its assignment too"


def test_when_all_are_silent_the_group_is_empty() -> None:
    crew = Crew()
    crew.stable("a", "b", "c")
    crew.wait(10_000)
    assert (crew.group.phase, crew.group.generation, crew.records[-1].members) == (Phase.EMPTY, 2, [])


def test_a_silent_member_holds_up_a_rebalance_for_no_longer_than_its_session() -> None:
    crew = Crew()
    a, silent = crew.stable("a", "b")
    ticket = crew.join("a", a)
    crew.wait(10_000)
    assert crew.answers[ticket].generation_id == 2
    assert silent not in crew.group.members


def test_after_a_restart_members_have_a_whole_session_to_be_heard() -> None:
    crew = Crew()
    a, b = crew.stable("a", "b")
    crew.wait(9000)
    crew.restart()
    assert (crew.group.phase, crew.group.generation, crew.group.leader) == (Phase.STABLE, 1, a)
    crew.wait(9999)
    assert crew.beat(a) == ErrorCode.NONE
    crew.wait(1)
    assert crew.beat(b) == ErrorCode.UNKNOWN_MEMBER_ID


def test_after_a_restart_everyone_is_given_its_assignment_again() -> None:
    crew = Crew()
    a, b = crew.stable("a", "b")
    crew.restart()
    assert [crew.answers[crew.sync(member)].assignment for member in (a, b)] == [a.encode(), b.encode()]


def test_a_generation_that_was_never_assigned_is_gone_with_its_coordinator() -> None:
    crew = Crew()
    a, b = crew.stable("a", "b")
    crew.join("a", a)
    crew.join("b", b)
    assert crew.group.generation == 2
    crew.restart()
    assert crew.group.generation == 1
    assert crew.answers[crew.sync(a, generation=2)].error_code == ErrorCode.ILLEGAL_GENERATION


def test_whoever_waits_is_told_when_the_coordinator_moves() -> None:
    crew = Crew()
    crew.stable("a")
    joining = crew.join("b", version=3)
    crew.carry_out(bury(crew.group, ErrorCode.NOT_COORDINATOR, crew.now))
    assert crew.answers[joining].error_code == ErrorCode.NOT_COORDINATOR

    other = Crew()
    other.member("a")
    follower = other.member("b")
    other.wait(0)
    syncing = other.sync(follower)
    other.carry_out(bury(other.group, ErrorCode.NOT_COORDINATOR, other.now))
    assert other.answers[syncing].error_code == ErrorCode.NOT_COORDINATOR
