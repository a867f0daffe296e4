"""Who comes into a classic group, and when a generation begins."""

import pytest

from tests.coordinator.classic.crew import SESSION_MS, Crew
from tidelog.coordinator.group.classic import join as join_group
from tidelog.coordinator.group.classic.join import NEW_MEMBER_TIMEOUT_MS
from tidelog.coordinator.group.classic.phases import TRANSITIONS, Phase
from tidelog.coordinator.group.classic.rebalance import Limits
from tidelog.wire.errors import ErrorCode


def protocols(*names: str, metadata: bytes = b"") -> tuple[tuple[str, bytes], ...]:
    return tuple((name, metadata) for name in names)


def test_a_new_member_is_told_its_id_and_comes_again_with_it() -> None:
    crew = Crew()
    required = crew.answers[crew.join("ship")]
    assert (required.error_code, required.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "ship-1")
    assert crew.group.phase is Phase.EMPTY
    ticket = crew.join("ship", "ship-1")
    assert ticket not in crew.answers
    crew.wait(0)
    answer = crew.answers[ticket]
    assert (answer.error_code, answer.generation_id, answer.leader, answer.member_id) == (0, 1, "ship-1", "ship-1")
    assert [member.member_id for member in answer.members] == ["ship-1"]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_members_of_old_versions_come_in_at_once(version: int) -> None:
    crew = Crew()
    ticket = crew.join("ship", version=version)
    crew.wait(0)
    assert crew.answers[ticket].member_id == "ship-1"
    assert crew.group.phase is Phase.COMPLETING


@pytest.mark.parametrize("version", [4, 5, 9])
def test_members_of_newer_versions_are_told_their_id_first(version: int) -> None:
    crew = Crew()
    assert crew.answers[crew.join("ship", version=version)].error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_an_id_that_nobody_comes_back_with_is_forgotten_after_its_session() -> None:
    crew = Crew()
    crew.join("ship", session_ms=7000)
    crew.wait(6999)
    assert list(crew.group.pending) == ["ship-1"]
    crew.wait(1)
    assert not crew.group.pending
    assert crew.answers[crew.join("ship", "ship-1")].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_group_waits_for_ids_that_were_handed_out() -> None:
    crew = Crew()
    (first,) = crew.stable("a")
    required = crew.answers[crew.join("b")].member_id
    again = crew.join("a", first)
    assert again not in crew.answers, "b has its id and is on its way"
    crew.join("b", required)
    assert crew.answers[again].generation_id == 2


def test_a_pending_id_with_an_instance_id_is_nobodys() -> None:
    crew = Crew()
    required = crew.answers[crew.join("a")].member_id
    assert crew.answers[crew.join("a", required, instance="i")].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_number_of_ids_on_their_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_group, "PENDING_MAX", 2)
    crew = Crew()
    codes = [crew.answers[crew.join("a")].error_code for _ in range(3)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_what_members_say_about_themselves_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits in memory for a generation, and could never be written down."""
    monkeypatch.setattr(join_group, "SAID_BYTES_MAX", 250)
    crew = Crew()
    a, b = crew.stable("a", "b", protocols=protocols("range", metadata=bytes(80)))
    assert crew.answers[crew.join("c", protocols=protocols("range", metadata=bytes(80)))].error_code == (
        ErrorCode.GROUP_MAX_SIZE_REACHED
    )
    lengthy = crew.join("a", a, protocols=protocols("range", "sticky", metadata=bytes(80)))
    assert crew.answers[lengthy].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (crew.beat(a), crew.beat(b)) == (ErrorCode.NONE, ErrorCode.NONE), "it is still a member, as it was"
    crew.join("a", a, protocols=protocols("range", metadata=bytes(150)))
    assert crew.beat(b) == ErrorCode.REBALANCE_IN_PROGRESS, "in the place of what it said before there is room for it"


def test_members_who_start_together_meet_in_one_generation() -> None:
    crew = Crew(Limits(initial_delay_ms=3000))
    a = crew.member("a")
    crew.wait(2900)
    b = crew.member("b")
    crew.wait(2900)
    assert crew.group.phase is Phase.PREPARING, "b came during the delay, so it goes on"
    c = crew.member("c")
    crew.wait(6100)
    assert (crew.group.phase, crew.group.generation) == (Phase.COMPLETING, 1)
    assert set(crew.group.members) == {a, b, c}


def test_the_initial_delay_ends_with_the_rebalance_timeout_whoever_comes() -> None:
    crew = Crew(Limits(initial_delay_ms=3000))
    crew.member("a", rebalance_ms=7000)
    for _ in range(6):
        crew.wait(1000)
        crew.member("late", rebalance_ms=7000)
        assert crew.group.phase is Phase.PREPARING
    crew.wait(1000)
    assert crew.group.phase is Phase.COMPLETING


def test_everyone_must_share_a_protocol_and_the_type() -> None:
    crew = Crew()
    crew.stable("a", protocols=protocols("range", "sticky"))
    other = crew.answers[crew.join("b", protocols=protocols("roundrobin"))]
    assert (other.error_code, other.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    connect = crew.answers[crew.join("b", protocols=protocols("range"), protocol_type="connect")]
    assert connect.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert crew.group.phase is Phase.STABLE
    assert crew.answers[crew.join("b", protocols=protocols("sticky"))].error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize(("protocol_type", "offered"), [("", protocols("range")), ("consumer", ())])
def test_a_member_without_type_or_protocols_is_refused(
    protocol_type: str, offered: tuple[tuple[str, bytes], ...]
) -> None:
    crew = Crew()
    answer = crew.answers[crew.join("a", protocol_type=protocol_type, protocols=offered)]
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_with_the_most_votes_that_all_know_wins() -> None:
    crew = Crew()
    crew.member("a", protocols=protocols("range", "sticky"))
    crew.member("b", protocols=protocols("sticky", "range"))
    crew.member("c", protocols=protocols("private", "sticky", "range"))
    crew.wait(0)
    assert crew.group.protocol == "sticky"


def test_only_the_leader_is_told_who_the_members_are_with_the_chosen_protocols_metadata() -> None:
    crew = Crew()
    crew.join("a", version=3, protocols=(("sticky", b"s-a"), ("range", b"r-a")))
    crew.join("b", version=3, protocols=(("range", b"r-b"),))
    crew.wait(0)
    leader, follower = crew.answers[1], crew.answers[2]
    assert [(one.member_id, one.metadata) for one in leader.members] == [("a-1", b"r-a"), ("b-2", b"r-b")]
    assert (follower.members, follower.leader, follower.protocol_name) == ([], "a-1", "range")
    assert follower.protocol_type == "consumer"


def test_a_member_that_joins_again_with_nothing_new_gets_its_generation_again() -> None:
    crew = Crew()
    _, follower = crew.stable("a", "b")
    answer = crew.answers[crew.join("b", follower)]
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert crew.group.phase is Phase.STABLE


def test_so_does_a_leader_that_missed_the_answer() -> None:
    crew = Crew()
    leader = crew.member("a")
    crew.member("b")
    crew.wait(0)
    answer = crew.answers[crew.join("a", leader)]
    assert (answer.generation_id, len(answer.members)) == (1, 2)
    assert crew.group.phase is Phase.COMPLETING


def test_the_leader_of_a_stable_group_joins_again_to_have_a_rebalance() -> None:
    crew = Crew()
    leader, follower = crew.stable("a", "b")
    crew.join("a", leader)
    assert crew.group.phase is Phase.PREPARING
    assert crew.beat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    crew.join("b", follower)
    assert (crew.group.generation, crew.group.leader) == (2, leader)


@pytest.mark.parametrize("phase", [Phase.STABLE, Phase.COMPLETING])
def test_a_member_with_other_metadata_means_a_rebalance(phase: Phase) -> None:
    crew = Crew()
    _, follower = [crew.member("a"), crew.member("b")]
    crew.wait(0)
    if phase is Phase.STABLE:
        crew.settle()
    assert crew.group.phase is phase
    crew.join("b", follower, protocols=protocols("range", metadata=b"another topic"))
    assert crew.group.phase is Phase.PREPARING


def test_who_does_not_join_in_time_is_out_and_another_leads() -> None:
    crew = Crew()
    a, b, c = crew.stable("a", "b", "c", session_ms=30_000, rebalance_ms=20_000)
    ticket = crew.join("b", b, protocols=protocols("range", metadata=b"new"), session_ms=30_000, rebalance_ms=20_000)
    crew.wait(19_999)
    assert ticket not in crew.answers
    crew.wait(1)
    answer = crew.answers[ticket]
    assert (answer.generation_id, answer.leader, [one.member_id for one in answer.members]) == (2, b, [b])
    assert crew.beat(a, 1) == crew.beat(c, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_most_patient_members_rebalance_timeout_counts() -> None:
    crew = Crew()
    crew.stable("a", rebalance_ms=20_000, session_ms=60_000)
    b = crew.member("b", rebalance_ms=5000, session_ms=60_000)
    crew.wait(19_000)
    assert crew.group.phase is Phase.PREPARING
    crew.wait(1000)
    assert (crew.group.phase, list(crew.group.members)) == (Phase.COMPLETING, [b])


def test_a_new_member_whose_join_waits_too_long_is_told_to_begin_anew() -> None:
    crew = Crew()
    (a,) = crew.stable("a", rebalance_ms=2 * NEW_MEMBER_TIMEOUT_MS, session_ms=1000)
    ticket = crew.join("b", version=3)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // 500):
        assert ticket not in crew.answers
        crew.beat(a, 1)
        crew.wait(500)
    assert (crew.answers[ticket].error_code, crew.answers[ticket].member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_asking_twice_leaves_nobody_without_an_answer() -> None:
    crew = Crew()
    a, _ = crew.stable("a", "b")
    first, second = crew.join("a", a), crew.join("a", a)
    assert crew.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in crew.answers


def test_a_full_group_takes_nobody_more() -> None:
    crew = Crew(Limits(members_max=2, initial_delay_ms=0))
    a, b = crew.stable("a", "b")
    answer = crew.answers[crew.join("c")]
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert crew.beat(a) == crew.beat(b) == ErrorCode.NONE
    again = crew.join("a", a)
    crew.join("b", b)
    assert crew.answers[again].generation_id == 2


def test_who_is_turned_away_is_not_waited_for_either() -> None:
    crew = Crew(Limits(members_max=2, initial_delay_ms=0))
    (a,) = crew.stable("a")
    b, c = (crew.answers[crew.join(who)].member_id for who in ("b", "c"))
    crew.join("b", b)
    again = crew.join("a", a)
    assert again not in crew.answers, "an id was handed out that nobody came with yet"
    assert crew.answers[crew.join("c", c)].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (crew.answers[again].generation_id, set(crew.group.members)) == (2, {a, b})
    assert crew.group.pending == {}


def test_a_group_above_its_limit_shrinks_to_those_who_join_first() -> None:
    crew = Crew()
    a, b, c = crew.stable("a", "b", "c")
    crew.limits = Limits(members_max=2, initial_delay_ms=0)
    crew.join("a", a)
    crew.join("b", b)
    assert crew.answers[crew.join("c", c)].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (crew.group.phase, set(crew.group.members)) == (Phase.COMPLETING, {a, b})


def test_a_group_that_was_empty_remembers_its_generation() -> None:
    crew = Crew()
    (a,) = crew.stable("a")
    crew.leave(a)
    assert (crew.group.phase, crew.group.generation) == (Phase.EMPTY, 2)
    crew.restart()
    crew.stable("b")
    assert crew.group.generation == 3


def test_a_silent_static_group_is_waited_for_until_its_sessions_end() -> None:
    crew = Crew()
    crew.join("a", instance="one", session_ms=90_000, rebalance_ms=20_000)
    crew.join("b", instance="two", session_ms=90_000, rebalance_ms=20_000)
    crew.wait(0)
    crew.settle()
    ids = dict(crew.group.static)
    crew.join("c", version=3, session_ms=90_000, rebalance_ms=20_000)
    crew.leave(list(crew.group.members)[-1])
    crew.wait(20_000)
    assert crew.group.phase is Phase.PREPARING, "nobody joined: there is nobody to lead"
    assert crew.group.static == ids
    crew.wait(90_000)
    assert crew.group.phase is Phase.EMPTY


def test_the_table_of_phases_leads_everywhere_and_back() -> None:
    reached = {Phase.EMPTY}
    while more := {after for phase in reached for after in TRANSITIONS[phase]} - reached:
        reached |= more
    assert reached == set(Phase)
    assert SESSION_MS < NEW_MEMBER_TIMEOUT_MS
