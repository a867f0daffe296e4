"""Who comes into a classic group, and when a generation begins."""

import pytest

from tests.coordinator.classic.harness import SESSION_MS, GroupHarness
from tidelog.coordinator.group.classic import join as join_group
from tidelog.coordinator.group.classic.join import NEW_MEMBER_TIMEOUT_MS
from tidelog.coordinator.group.classic.phases import TRANSITIONS, Phase
from tidelog.coordinator.group.classic.rebalance import Limits
from tidelog.wire.errors import ErrorCode


def protocols(*names: str, metadata: bytes = b"") -> tuple[tuple[str, bytes], ...]:
    return tuple((name, metadata) for name in names)


def test_a_new_member_is_told_its_id_and_comes_again_with_it() -> None:
    harness = GroupHarness()
    required = harness.answers[harness.join("ship")]
    assert (required.error_code, required.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "ship-1")
    assert harness.group.phase is Phase.EMPTY
    ticket = harness.join("ship", "ship-1")
    assert ticket not in harness.answers
    harness.wait(0)
    answer = harness.answers[ticket]
    assert (answer.error_code, answer.generation_id, answer.leader, answer.member_id) == (0, 1, "ship-1", "ship-1")
    assert [member.member_id for member in answer.members] == ["ship-1"]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_members_of_old_versions_come_in_at_once(version: int) -> None:
    harness = GroupHarness()
    ticket = harness.join("ship", version=version)
    harness.wait(0)
    assert harness.answers[ticket].member_id == "ship-1"
    assert harness.group.phase is Phase.COMPLETING


@pytest.mark.parametrize("version", [4, 5, 9])
def test_members_of_newer_versions_are_told_their_id_first(version: int) -> None:
    harness = GroupHarness()
    assert harness.answers[harness.join("ship", version=version)].error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_an_id_that_nobody_comes_back_with_is_forgotten_after_its_session() -> None:
    harness = GroupHarness()
    harness.join("ship", session_ms=7000)
    harness.wait(6999)
    assert list(harness.group.pending) == ["ship-1"]
    harness.wait(1)
    assert not harness.group.pending
    assert harness.answers[harness.join("ship", "ship-1")].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_group_waits_for_ids_that_were_handed_out() -> None:
    harness = GroupHarness()
    (first,) = harness.stable("a")
    required = harness.answers[harness.join("b")].member_id
    again = harness.join("a", first)
    assert again not in harness.answers, "b has its id and is on its way"
    harness.join("b", required)
    assert harness.answers[again].generation_id == 2


def test_a_pending_id_with_an_instance_id_is_nobodys() -> None:
    harness = GroupHarness()
    required = harness.answers[harness.join("a")].member_id
    assert harness.answers[harness.join("a", required, instance="i")].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_number_of_ids_on_their_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_group, "PENDING_MEMBERS_MAX", 2)
    harness = GroupHarness()
    codes = [harness.answers[harness.join("a")].error_code for _ in range(3)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_what_members_say_about_themselves_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits in memory for a generation, and could never be written down."""
    monkeypatch.setattr(join_group, "SAID_BYTES_MAX", 250)
    harness = GroupHarness()
    a, b = harness.stable("a", "b", protocols=protocols("range", metadata=bytes(80)))
    assert harness.answers[harness.join("c", protocols=protocols("range", metadata=bytes(80)))].error_code == (
        ErrorCode.GROUP_MAX_SIZE_REACHED
    )
    lengthy = harness.join("a", a, protocols=protocols("range", "sticky", metadata=bytes(80)))
    assert harness.answers[lengthy].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (harness.beat(a), harness.beat(b)) == (ErrorCode.NONE, ErrorCode.NONE), "it is still a member, as it was"
    harness.join("a", a, protocols=protocols("range", metadata=bytes(150)))
    assert harness.beat(b) == ErrorCode.REBALANCE_IN_PROGRESS, (
        "in the place of what it said before there is room for it"
    )


def test_a_group_that_says_as_much_as_it_may_takes_no_byte_more_and_its_restarted_members_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_group, "SAID_BYTES_MAX", 200)
    harness = GroupHarness()
    whole = protocols("range", metadata=bytes(195))
    too_much = protocols("range", metadata=bytes(196))
    assert harness.answers[harness.join("a", protocols=too_much)].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.join("a", instance="one", protocols=whole)
    harness.wait(0)
    harness.settle()
    assert harness.answers[harness.join("b", protocols=(("", b"x"),))].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    again = harness.answers[harness.join("a", instance="one", protocols=whole)]
    assert again.error_code == ErrorCode.NONE, "what it said before makes room for what it says now"


def test_members_who_start_together_meet_in_one_generation() -> None:
    harness = GroupHarness(Limits(initial_delay_ms=3000))
    a = harness.member("a")
    harness.wait(2900)
    b = harness.member("b")
    harness.wait(2900)
    assert harness.group.phase is Phase.PREPARING, "b came during the delay, so it goes on"
    c = harness.member("c")
    harness.wait(6100)
    assert (harness.group.phase, harness.group.generation) == (Phase.COMPLETING, 1)
    assert set(harness.group.members) == {a, b, c}


def test_the_initial_delay_ends_with_the_rebalance_timeout_whoever_comes() -> None:
    harness = GroupHarness(Limits(initial_delay_ms=3000))
    harness.member("a", rebalance_ms=7000)
    for _ in range(6):
        harness.wait(1000)
        harness.member("late", rebalance_ms=7000)
        assert harness.group.phase is Phase.PREPARING
    harness.wait(1000)
    assert harness.group.phase is Phase.COMPLETING


def test_everyone_must_share_a_protocol_and_the_type() -> None:
    harness = GroupHarness()
    harness.stable("a", protocols=protocols("range", "sticky"))
    other = harness.answers[harness.join("b", protocols=protocols("roundrobin"))]
    assert (other.error_code, other.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    connect = harness.answers[harness.join("b", protocols=protocols("range"), protocol_type="connect")]
    assert connect.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.group.phase is Phase.STABLE
    assert harness.answers[harness.join("b", protocols=protocols("sticky"))].error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize(("protocol_type", "offered"), [("", protocols("range")), ("consumer", ())])
def test_a_member_without_type_or_protocols_is_refused(
    protocol_type: str, offered: tuple[tuple[str, bytes], ...]
) -> None:
    harness = GroupHarness()
    answer = harness.answers[harness.join("a", protocol_type=protocol_type, protocols=offered)]
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_with_the_most_votes_that_all_know_wins() -> None:
    harness = GroupHarness()
    harness.member("a", protocols=protocols("range", "sticky"))
    harness.member("b", protocols=protocols("sticky", "range"))
    harness.member("c", protocols=protocols("private", "sticky", "range"))
    harness.wait(0)
    assert harness.group.protocol == "sticky"


def test_only_the_leader_is_told_who_the_members_are_with_the_chosen_protocols_metadata() -> None:
    harness = GroupHarness()
    harness.join("a", version=3, protocols=(("sticky", b"s-a"), ("range", b"r-a")))
    harness.join("b", version=3, protocols=(("range", b"r-b"),))
    harness.wait(0)
    leader, follower = harness.answers[1], harness.answers[2]
    assert [(one.member_id, one.metadata) for one in leader.members] == [("a-1", b"r-a"), ("b-2", b"r-b")]
    assert (follower.members, follower.leader, follower.protocol_name) == ([], "a-1", "range")
    assert follower.protocol_type == "consumer"


def test_a_member_that_joins_again_with_nothing_new_gets_its_generation_again() -> None:
    harness = GroupHarness()
    _, follower = harness.stable("a", "b")
    answer = harness.answers[harness.join("b", follower)]
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert harness.group.phase is Phase.STABLE


def test_so_does_a_leader_that_missed_the_answer() -> None:
    harness = GroupHarness()
    leader = harness.member("a")
    harness.member("b")
    harness.wait(0)
    answer = harness.answers[harness.join("a", leader)]
    assert (answer.generation_id, len(answer.members)) == (1, 2)
    assert harness.group.phase is Phase.COMPLETING


def test_the_leader_of_a_stable_group_joins_again_to_have_a_rebalance() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable("a", "b")
    harness.join("a", leader)
    assert harness.group.phase is Phase.PREPARING
    assert harness.beat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    harness.join("b", follower)
    assert (harness.group.generation, harness.group.leader) == (2, leader)


@pytest.mark.parametrize("phase", [Phase.STABLE, Phase.COMPLETING])
def test_a_member_with_other_metadata_means_a_rebalance(phase: Phase) -> None:
    harness = GroupHarness()
    _, follower = [harness.member("a"), harness.member("b")]
    harness.wait(0)
    if phase is Phase.STABLE:
        harness.settle()
    assert harness.group.phase is phase
    harness.join("b", follower, protocols=protocols("range", metadata=b"another topic"))
    assert harness.group.phase is Phase.PREPARING


def test_who_does_not_join_in_time_is_out_and_another_leads() -> None:
    harness = GroupHarness()
    a, b, c = harness.stable("a", "b", "c", session_ms=30_000, rebalance_ms=20_000)
    ticket = harness.join("b", b, protocols=protocols("range", metadata=b"new"), session_ms=30_000, rebalance_ms=20_000)
    harness.wait(19_999)
    assert ticket not in harness.answers
    harness.wait(1)
    answer = harness.answers[ticket]
    assert (answer.generation_id, answer.leader, [one.member_id for one in answer.members]) == (2, b, [b])
    assert harness.beat(a, 1) == harness.beat(c, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_most_patient_members_rebalance_timeout_counts() -> None:
    harness = GroupHarness()
    harness.stable("a", rebalance_ms=20_000, session_ms=60_000)
    b = harness.member("b", rebalance_ms=5000, session_ms=60_000)
    harness.wait(19_000)
    assert harness.group.phase is Phase.PREPARING
    harness.wait(1000)
    assert (harness.group.phase, list(harness.group.members)) == (Phase.COMPLETING, [b])


def test_a_new_member_whose_join_waits_too_long_is_told_to_begin_anew() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a", rebalance_ms=2 * NEW_MEMBER_TIMEOUT_MS, session_ms=1000)
    ticket = harness.join("b", version=3)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // 500):
        assert ticket not in harness.answers
        harness.beat(a, 1)
        harness.wait(500)
    assert (harness.answers[ticket].error_code, harness.answers[ticket].member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_asking_twice_leaves_nobody_without_an_answer() -> None:
    harness = GroupHarness()
    a, _ = harness.stable("a", "b")
    first, second = harness.join("a", a), harness.join("a", a)
    assert harness.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in harness.answers


def test_a_full_group_takes_nobody_more() -> None:
    harness = GroupHarness(Limits(members_max=2, initial_delay_ms=0))
    a, b = harness.stable("a", "b")
    answer = harness.answers[harness.join("c")]
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert harness.beat(a) == harness.beat(b) == ErrorCode.NONE
    again = harness.join("a", a)
    harness.join("b", b)
    assert harness.answers[again].generation_id == 2


def test_who_is_turned_away_is_not_waited_for_either() -> None:
    harness = GroupHarness(Limits(members_max=2, initial_delay_ms=0))
    (a,) = harness.stable("a")
    b, c = (harness.answers[harness.join(who)].member_id for who in ("b", "c"))
    harness.join("b", b)
    again = harness.join("a", a)
    assert again not in harness.answers, "an id was handed out that nobody came with yet"
    assert harness.answers[harness.join("c", c)].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (harness.answers[again].generation_id, set(harness.group.members)) == (2, {a, b})
    assert harness.group.pending == {}


def test_a_group_above_its_limit_shrinks_to_those_who_join_first() -> None:
    harness = GroupHarness()
    a, b, c = harness.stable("a", "b", "c")
    harness.limits = Limits(members_max=2, initial_delay_ms=0)
    harness.join("a", a)
    harness.join("b", b)
    assert harness.answers[harness.join("c", c)].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (harness.group.phase, set(harness.group.members)) == (Phase.COMPLETING, {a, b})


def test_a_group_that_was_empty_remembers_its_generation() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a")
    harness.leave(a)
    assert (harness.group.phase, harness.group.generation) == (Phase.EMPTY, 2)
    harness.restart()
    harness.stable("b")
    assert harness.group.generation == 3


def test_a_silent_static_group_is_waited_for_until_its_sessions_end() -> None:
    harness = GroupHarness()
    harness.join("a", instance="one", session_ms=90_000, rebalance_ms=20_000)
    harness.join("b", instance="two", session_ms=90_000, rebalance_ms=20_000)
    harness.wait(0)
    harness.settle()
    ids = dict(harness.group.static)
    harness.join("c", version=3, session_ms=90_000, rebalance_ms=20_000)
    harness.leave(list(harness.group.members)[-1])
    harness.wait(20_000)
    assert harness.group.phase is Phase.PREPARING, "nobody joined: there is nobody to lead"
    assert harness.group.static == ids
    harness.wait(90_000)
    assert harness.group.phase is Phase.EMPTY


def test_the_table_of_phases_leads_everywhere_and_back() -> None:
    reached = {Phase.EMPTY}
    while more := {after for phase in reached for after in TRANSITIONS[phase]} - reached:
        reached |= more
    assert reached == set(Phase)
    assert SESSION_MS < NEW_MEMBER_TIMEOUT_MS
