"""From the leader's assignment to everyone's part of it; what happens when the record isn't written."""

import pytest

from tests.coordinator.classic.crew import BEGIN_MS, REBALANCE_MS, Crew
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records.groups import GroupMetadataValue, MemberMetadata


def completing(*who: str) -> tuple[Crew, list[str]]:
    crew = Crew()
    ids = [crew.member(one) for one in who]
    crew.wait(0)
    return crew, ids


def test_everyone_gets_its_part_once_the_leader_has_spoken() -> None:
    crew, (leader, follower) = completing("a", "b")
    early = crew.sync(follower)
    assert early not in crew.answers
    ticket = crew.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    assert (crew.answers[ticket].assignment, crew.answers[early].assignment) == (b"p0", b"p1")
    assert (crew.answers[early].protocol_type, crew.answers[early].protocol_name) == ("consumer", "range")
    assert crew.group.phase is Phase.STABLE
    assert crew.answers[crew.sync(follower)].assignment == b"p1", "asked again, it is told again"


def test_nobody_hears_of_an_assignment_that_is_not_committed() -> None:
    crew, (leader, follower) = completing("a", "b")
    crew.held = True
    early = crew.sync(follower)
    ticket = crew.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    assert not {early, ticket} & crew.answers.keys()
    assert crew.group.phase is Phase.COMPLETING
    crew.commit()
    assert {early, ticket} <= crew.answers.keys()


def test_a_leader_that_assigns_twice_before_the_commit_is_held_to_its_first_word() -> None:
    crew, (leader, follower) = completing("a", "b")
    crew.held = True
    early = crew.sync(follower)
    first = crew.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    second = crew.sync(leader, assignments={leader: b"p1", follower: b"p0"})
    assert crew.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS, "the one that came later waits"
    crew.commit()
    assert (crew.answers[second].assignment, crew.answers[early].assignment) == (b"p0", b"p1")
    assert [[one.assignment for one in record.members] for record in crew.records] == [[b"p0", b"p1"]]
    crew.restart()
    assert crew.answers[crew.sync(follower)].assignment == b"p1", "the next coordinator says the same"


def test_a_leader_whose_assignment_could_not_be_stored_assigns_anew() -> None:
    crew, (leader, follower) = completing("a", "b")
    crew.held = True
    crew.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    crew.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    for member_id in (leader, follower):
        crew.join("x", member_id)
    crew.sync(leader, assignments={leader: b"p1", follower: b"p0"})
    crew.commit()
    assert crew.answers[crew.sync(follower)].assignment == b"p0"


def test_the_record_holds_the_generation_with_its_assignment() -> None:
    crew, (leader, follower) = completing("a", "b")
    crew.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    member = {"client_host": "/127.0.0.1", "rebalance_timeout": REBALANCE_MS, "session_timeout": 10_000}
    assert crew.records[-1] == GroupMetadataValue(
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
    crew, (leader, follower) = completing("a", "b")
    crew.sync(leader, assignments={leader: b"p0", "stranger": b"p1"})
    answer = crew.answers[crew.sync(follower)]
    assert (answer.error_code, answer.assignment) == (0, b"")
    assert [one.member_id for one in crew.records[-1].members] == [leader, follower]


def test_what_a_follower_hands_in_counts_for_nothing() -> None:
    crew, (leader, follower) = completing("a", "b")
    ticket = crew.sync(follower, assignments={follower: b"everything"})
    assert ticket not in crew.answers
    crew.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    assert crew.answers[ticket].assignment == b"p1"


def test_only_members_of_the_generation_with_its_protocol_sync() -> None:
    crew, (leader, _) = completing("a", "b")
    assert crew.answers[crew.sync("nobody")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert crew.answers[crew.sync(leader, generation=0)].error_code == ErrorCode.ILLEGAL_GENERATION
    assert crew.answers[crew.sync(leader, instance="i")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    other = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert crew.answers[crew.sync(leader, protocol="sticky", protocol_type="consumer")].error_code == other
    assert crew.answers[crew.sync(leader, protocol="range", protocol_type="connect")].error_code == other
    assert crew.group.phase is Phase.COMPLETING


def test_a_newcomer_sends_those_who_wait_back_to_join() -> None:
    crew, (leader, follower) = completing("a", "b")
    waiting = crew.sync(follower)
    crew.member("c")
    assert crew.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert crew.answers[crew.sync(leader, 1)].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_is_committed_too_late_is_given_to_nobody() -> None:
    crew, (leader, follower) = completing("a", "b")
    crew.held = True
    ticket = crew.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    crew.member("c")
    assert crew.answers[ticket].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    crew.commit()
    assert crew.group.phase is Phase.PREPARING
    crew.join("a", leader)
    crew.join("b", follower)
    assert (crew.group.phase, crew.group.generation) == (Phase.COMPLETING, 2)
    assert all(member.assignment == b"" for member in crew.group.members.values())


def test_an_assignment_of_one_generation_is_never_given_in_the_next() -> None:
    crew, (leader, follower) = completing("a", "b")
    crew.held = True
    crew.sync(leader, assignments={leader: b"old", follower: b"old"})
    crew.join("b", follower, protocols=(("range", b"new"),))
    crew.join("a", leader)
    waiting = crew.sync(follower, 2)
    crew.commit()
    assert waiting not in crew.answers
    crew.sync(leader, 2, assignments={leader: b"new", follower: b"new"})
    crew.commit()
    assert crew.answers[waiting].assignment == b"new"


def test_members_that_never_sync_are_out_after_the_rebalance_timeout() -> None:
    crew, (leader, follower) = completing("a", "b")
    crew.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    for _ in range(10):
        crew.wait(REBALANCE_MS / 10 - 1)
        crew.beat(leader)
        assert crew.beat(follower) == ErrorCode.NONE
    crew.wait(10)
    assert crew.beat(follower) == ErrorCode.UNKNOWN_MEMBER_ID
    assert crew.beat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_out_and_the_others_join_again() -> None:
    crew, (leader, follower) = completing("a", "b")
    ticket = crew.sync(follower)
    for _ in range(20):
        crew.wait(REBALANCE_MS / 20 - 1)
        crew.beat(leader)
    crew.wait(20)
    assert crew.answers[ticket].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (crew.group.phase, list(crew.group.members)) == (Phase.PREPARING, [follower])


def test_a_session_does_not_end_while_the_member_waits_for_its_assignment() -> None:
    crew, (leader, follower) = completing("a", "b")
    ticket = crew.sync(follower)
    for _ in range(5):
        crew.beat(leader)
        crew.wait(9000)
    assert set(crew.group.members) == {leader, follower}
    crew.sync(leader, assignments={follower: b"p1"})
    assert crew.answers[ticket].assignment == b"p1"
    crew.beat(leader)
    crew.wait(9999)
    assert follower in crew.group.members, "its session began anew with the answer"
    crew.wait(1)
    assert follower not in crew.group.members


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
    crew, (leader, follower) = completing("a", "b")
    crew.held = True
    tickets = [crew.sync(follower), crew.sync(leader, assignments={leader: b"p0", follower: b"p1"})]
    crew.fail(failed)
    assert [(crew.answers[ticket].error_code, crew.answers[ticket].assignment) for ticket in tickets] == [
        (told, b"")
    ] * 2
    assert crew.group.phase is Phase.PREPARING
    crew.held = False
    crew.join("a", leader)
    crew.join("b", follower)
    crew.settle()
    assert (crew.group.phase, crew.group.generation) == (Phase.STABLE, 2)


def test_asking_for_an_assignment_twice_leaves_nobody_without_an_answer() -> None:
    crew, (leader, follower) = completing("a", "b")
    first, second = crew.sync(follower), crew.sync(follower)
    assert crew.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    crew.sync(leader, assignments={follower: b"p1"})
    assert crew.answers[second].assignment == b"p1"


def test_the_log_names_a_few_of_those_that_the_leader_left_out(caplog: pytest.LogCaptureFixture) -> None:
    crew, (leader, *_) = completing(*(f"m{number:02d}" for number in range(40)))
    crew.sync(leader)
    [said] = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert said.endswith("and 35 more; they get an empty assignment")
    assert len(said) < 200
