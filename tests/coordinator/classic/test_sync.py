"""From the leader's assignment to everyone's part of it; what happens when the record isn't written."""

import pytest

from tests.coordinator.classic.harness import BEGIN_MS, REBALANCE_MS, GroupHarness
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.rebalance import STORE_AGAIN_MS
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records.groups import GroupMetadataValue, MemberMetadata


def completing(*who: str) -> tuple[GroupHarness, list[str]]:
    harness = GroupHarness()
    ids = [harness.member(one) for one in who]
    harness.wait(0)
    return harness, ids


def test_everyone_gets_its_part_once_the_leader_has_spoken() -> None:
    harness, (leader, follower) = completing("a", "b")
    early = harness.sync(follower)
    assert early not in harness.answers
    ticket = harness.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    assert (harness.answers[ticket].assignment, harness.answers[early].assignment) == (b"p0", b"p1")
    assert (harness.answers[early].protocol_type, harness.answers[early].protocol_name) == ("consumer", "range")
    assert harness.group.phase is Phase.STABLE
    assert harness.answers[harness.sync(follower)].assignment == b"p1", "asked again, it is told again"


def test_nobody_hears_of_an_assignment_that_is_not_committed() -> None:
    harness, (leader, follower) = completing("a", "b")
    harness.held = True
    early = harness.sync(follower)
    ticket = harness.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    assert not {early, ticket} & harness.answers.keys()
    assert harness.group.phase is Phase.COMPLETING
    harness.commit()
    assert {early, ticket} <= harness.answers.keys()


def test_a_leader_that_assigns_twice_before_the_commit_is_held_to_its_first_word() -> None:
    harness, (leader, follower) = completing("a", "b")
    harness.held = True
    early = harness.sync(follower)
    first = harness.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    second = harness.sync(leader, assignments={leader: b"p1", follower: b"p0"})
    assert harness.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS, "the one that came later waits"
    harness.commit()
    assert (harness.answers[second].assignment, harness.answers[early].assignment) == (b"p0", b"p1")
    assert [[one.assignment for one in record.members] for record in harness.records] == [[b"p0", b"p1"]]
    harness.restart()
    assert harness.answers[harness.sync(follower)].assignment == b"p1", "the next coordinator says the same"


def test_a_leader_whose_assignment_could_not_be_stored_assigns_anew() -> None:
    harness, (leader, follower) = completing("a", "b")
    harness.held = True
    harness.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    harness.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    for member_id in (leader, follower):
        harness.join("x", member_id)
    harness.wait(STORE_AGAIN_MS)
    harness.sync(leader, assignments={leader: b"p1", follower: b"p0"})
    harness.commit()
    assert harness.answers[harness.sync(follower)].assignment == b"p0"


def test_a_group_whose_assignment_can_not_be_stored_tries_once_a_second() -> None:
    """Members join again at once: on a disk that stays full they had a thousand generations a second."""
    harness, (leader, follower) = completing("a", "b")
    harness.held = True
    for generation in (1, 2, 3):
        assert harness.group.generation == generation
        harness.sync(leader, assignments={leader: b"p0", follower: b"p1"})
        harness.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        tickets = [harness.join("a", leader), harness.join("b", follower)]
        harness.wait(STORE_AGAIN_MS - 1)
        assert not set(tickets) & harness.answers.keys()
        harness.wait(1)
        assert set(tickets) <= harness.answers.keys()
        assert set(harness.group.members) == {leader, follower}


def test_the_record_holds_the_generation_with_its_assignment() -> None:
    harness, (leader, follower) = completing("a", "b")
    harness.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    member = {"client_host": "/127.0.0.1", "rebalance_timeout": REBALANCE_MS, "session_timeout": 10_000}
    assert harness.records[-1] == GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=leader,
        current_state_timestamp=BEGIN_MS + 1000,
        members=[
            MemberMetadata(member_id=leader, client_id="a", assignment=b"p0", **member),
            MemberMetadata(member_id=follower, client_id="b", assignment=b"p1", **member),
        ],
    )


def test_members_that_the_leader_forgot_get_an_empty_assignment_and_strangers_none() -> None:
    harness, (leader, follower) = completing("a", "b")
    harness.sync(leader, assignments={leader: b"p0", "stranger": b"p1"})
    answer = harness.answers[harness.sync(follower)]
    assert (answer.error_code, answer.assignment) == (0, b"")
    assert [one.member_id for one in harness.records[-1].members] == [leader, follower]


def test_what_a_follower_hands_in_counts_for_nothing() -> None:
    harness, (leader, follower) = completing("a", "b")
    ticket = harness.sync(follower, assignments={follower: b"everything"})
    assert ticket not in harness.answers
    harness.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    assert harness.answers[ticket].assignment == b"p1"


def test_only_members_of_the_generation_with_its_protocol_sync() -> None:
    harness, (leader, _) = completing("a", "b")
    assert harness.answers[harness.sync("nobody")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.answers[harness.sync(leader, generation=0)].error_code == ErrorCode.ILLEGAL_GENERATION
    assert harness.answers[harness.sync(leader, instance="i")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    other = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.answers[harness.sync(leader, protocol="sticky", protocol_type="consumer")].error_code == other
    assert harness.answers[harness.sync(leader, protocol="range", protocol_type="connect")].error_code == other
    assert harness.group.phase is Phase.COMPLETING


def test_a_newcomer_sends_those_who_wait_back_to_join() -> None:
    harness, (leader, follower) = completing("a", "b")
    waiting = harness.sync(follower)
    harness.member("c")
    assert harness.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.answers[harness.sync(leader, 1)].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_is_committed_too_late_is_given_to_nobody() -> None:
    harness, (leader, follower) = completing("a", "b")
    harness.held = True
    ticket = harness.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    harness.member("c")
    assert harness.answers[ticket].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    harness.commit()
    assert harness.group.phase is Phase.PREPARING
    harness.join("a", leader)
    harness.join("b", follower)
    assert (harness.group.phase, harness.group.generation) == (Phase.COMPLETING, 2)
    assert all(member.assignment == b"" for member in harness.group.members.values())


def test_an_assignment_of_one_generation_is_never_given_in_the_next() -> None:
    harness, (leader, follower) = completing("a", "b")
    harness.held = True
    harness.sync(leader, assignments={leader: b"old", follower: b"old"})
    harness.join("b", follower, protocols=(("range", b"new"),))
    harness.join("a", leader)
    waiting = harness.sync(follower, 2)
    harness.commit()
    assert waiting not in harness.answers
    harness.sync(leader, 2, assignments={leader: b"new", follower: b"new"})
    harness.commit()
    assert harness.answers[waiting].assignment == b"new"


def test_members_that_never_sync_are_out_after_the_rebalance_timeout() -> None:
    harness, (leader, follower) = completing("a", "b")
    harness.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    for _ in range(10):
        harness.wait(REBALANCE_MS / 10 - 1)
        harness.beat(leader)
        assert harness.beat(follower) == ErrorCode.NONE
    harness.wait(10)
    assert harness.beat(follower) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.beat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_out_and_the_others_join_again() -> None:
    harness, (leader, follower) = completing("a", "b")
    ticket = harness.sync(follower)
    for _ in range(20):
        harness.wait(REBALANCE_MS / 20 - 1)
        harness.beat(leader)
    harness.wait(20)
    assert harness.answers[ticket].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (harness.group.phase, list(harness.group.members)) == (Phase.PREPARING, [follower])


def test_a_session_does_not_end_while_the_member_waits_for_its_assignment() -> None:
    harness, (leader, follower) = completing("a", "b")
    ticket = harness.sync(follower)
    for _ in range(5):
        harness.beat(leader)
        harness.wait(9000)
    assert set(harness.group.members) == {leader, follower}
    harness.sync(leader, assignments={follower: b"p1"})
    assert harness.answers[ticket].assignment == b"p1"
    harness.beat(leader)
    harness.wait(9999)
    assert follower in harness.group.members, "its session began anew with the answer"
    harness.wait(1)
    assert follower not in harness.group.members


@pytest.mark.parametrize(
    ("failed", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_could_not_be_written_sends_everyone_back_to_join(
    failed: ErrorCode, told: ErrorCode
) -> None:
    harness, (leader, follower) = completing("a", "b")
    harness.held = True
    tickets = [harness.sync(follower), harness.sync(leader, assignments={leader: b"p0", follower: b"p1"})]
    harness.fail(failed)
    assert [(harness.answers[ticket].error_code, harness.answers[ticket].assignment) for ticket in tickets] == [
        (told, b"")
    ] * 2
    assert harness.group.phase is Phase.PREPARING
    harness.held = False
    harness.join("a", leader)
    harness.join("b", follower)
    harness.wait(STORE_AGAIN_MS)
    harness.settle()
    assert (harness.group.phase, harness.group.generation) == (Phase.STABLE, 2)


def test_asking_for_an_assignment_twice_leaves_nobody_without_an_answer() -> None:
    harness, (leader, follower) = completing("a", "b")
    first, second = harness.sync(follower), harness.sync(follower)
    assert harness.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    harness.sync(leader, assignments={follower: b"p1"})
    assert harness.answers[second].assignment == b"p1"


def test_the_log_names_a_few_of_those_that_the_leader_left_out(caplog: pytest.LogCaptureFixture) -> None:
    harness, (leader, *_) = completing(*(f"m{number:02d}" for number in range(40)))
    harness.sync(leader)
    [said] = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert said.endswith("and 35 more; they get an empty assignment")
    assert len(said) < 200
