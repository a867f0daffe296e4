"""The quorum and its members: votes by disk, successors, observers, voters that come and go."""

import pytest

from tests.raft.test_quorum import ONE, THREE, TWO, handle, leader_of_three, quorum, voters
from tidelog.raft.events import (
    NO_LEADER,
    AnnounceEnd,
    AnswerVote,
    Appended,
    AskVotes,
    Commit,
    CommitHeard,
    ElectionState,
    FindLeader,
    Follow,
    LeaderEnded,
    LeaderHeard,
    LogEnd,
    MadeDurable,
    Remember,
    ReplicaFetched,
    Resigned,
    SetTimer,
    StopLeading,
    TimedOut,
    TimerKind,
    VoteAnswered,
    VoteRequested,
    VotersChanged,
)
from tidelog.raft.quorum import REPLICAS_MAX, Quorum, Role
from tidelog.raft.settings import RaftSettings
from tidelog.raft.voters import ReplicaKey

NEW_DISK = b"directory-of-new"
FOUR = ReplicaKey(4, b"directory-of-4th")


# ---- pre-votes among those who lost their leader ----


def test_who_was_only_told_of_a_leader_and_never_reached_it_grants_pre_votes() -> None:
    """Or two that lost their leader would, in turn, tell each other to follow it."""
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 4))
    asked = VoteRequested(THREE, 4, LogEnd(), pre_vote=True)
    assert handle(q, asked) == [AnswerVote(THREE, 4, granted=True, pre_vote=True, leader_id=2)]
    handle(q, CommitHeard(4, 0))
    assert handle(q, asked) == [AnswerVote(THREE, 4, granted=False, pre_vote=True, leader_id=2)]
    handle(q, LeaderHeard(3, 5))  # another one, that answered nothing yet
    assert handle(q, VoteRequested(TWO, 5, LogEnd(), pre_vote=True)) == [
        AnswerVote(TWO, 5, granted=True, pre_vote=True, leader_id=3)
    ]


def test_follower_of_before_its_restart_grants_pre_votes_until_its_leader_answers() -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(4, leader_id=2))
    assert handle(q, VoteRequested(THREE, 4, LogEnd(), pre_vote=True)) == [
        AnswerVote(THREE, 4, granted=True, pre_vote=True, leader_id=2)
    ]


@pytest.mark.parametrize("granted", [True, False])
def test_who_hears_of_a_leader_it_did_not_know_follows_it_whatever_is_answered(granted: bool) -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(4))
    handle(q, TimedOut())
    assert handle(q, VoteAnswered(2, 4, granted, pre_vote=True, leader_id=3))[-1] == Follow(3, 4)


def test_pre_vote_of_who_still_names_the_silent_leader_counts() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 4), TimedOut())
    asked = handle(q, VoteAnswered(3, 4, granted=True, pre_vote=True, leader_id=2))
    assert asked[-1] == AskVotes(5, LogEnd(), pre_vote=False, voter_ids=(2, 3))


def test_epoch_that_is_heard_of_without_its_leader_is_entered() -> None:
    q = leader_of_three()
    assert handle(q, LeaderHeard(NO_LEADER, 1)) == []
    assert handle(q, LeaderHeard(NO_LEADER, 2)) == [
        StopLeading(1),
        Remember(ElectionState(2)),
        SetTimer(TimerKind.ELECTION),
    ]


# ---- successors ----


def test_leader_that_resigns_prefers_who_has_most_of_its_log() -> None:
    q = leader_of_three()
    handle(q, Appended(LogEnd(1, 9)), ReplicaFetched(THREE, 8), ReplicaFetched(TWO, 5), ReplicaFetched(FOUR, 9))
    assert handle(q, Resigned())[-1] == AnnounceEnd(1, (2, 3), (THREE, TWO))


def follower_of_two() -> Quorum:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 4), CommitHeard(4, 0))
    return q


@pytest.mark.parametrize(
    ("successors", "halvings"),
    [
        ((THREE, ONE), 1),
        ((THREE, FOUR, ONE), 1),
        ((THREE, ONE, FOUR), 2),
        ((THREE, FOUR), 0),  # it isn't named
        ((THREE, ReplicaKey(1, NEW_DISK)), 0),  # another disk is
    ],
)
def test_successor_waits_for_those_before_it_and_stands_then(successors: tuple[ReplicaKey, ...], halvings: int) -> None:
    q = follower_of_two()
    assert handle(q, LeaderEnded(2, 4, successors)) == [SetTimer(TimerKind.SUCCESSION, halvings)]
    assert (q.role, q.leader_id) == (Role.FOLLOWER, 2)
    assert handle(q, TimedOut())[-1] == AskVotes(4, LogEnd(), pre_vote=True, voter_ids=(2, 3))


@pytest.mark.parametrize("successors", [(ONE, THREE), (ReplicaKey(1), THREE), ()])
def test_first_successor_stands_at_once(successors: tuple[ReplicaKey, ...]) -> None:
    effects = handle(follower_of_two(), LeaderEnded(2, 4, successors))
    assert effects[-1] == AskVotes(4, LogEnd(), pre_vote=True, voter_ids=(2, 3))


def test_who_waits_for_its_turn_grants_pre_votes_to_the_successors_before_it() -> None:
    """Who stepped down may be gone: nobody else could make a majority with the first of them."""
    q = follower_of_two()
    handle(q, LeaderEnded(2, 4, (THREE, ONE)))
    assert handle(q, VoteRequested(THREE, 4, LogEnd(), pre_vote=True)) == [
        AnswerVote(THREE, 4, granted=True, pre_vote=True, leader_id=2)
    ]


def test_timeouts_are_those_of_kafka() -> None:
    settings = RaftSettings(election_timeout_ms=1000, election_backoff_max_ms=1000, fetch_timeout_ms=2000)

    def timeout_ms(kind: TimerKind, halvings: int = 0) -> int:
        return settings.timeout_ms(SetTimer(kind, halvings), lambda low, high: high)

    assert timeout_ms(TimerKind.ELECTION) == 2000
    assert timeout_ms(TimerKind.FETCH) == 2000
    assert timeout_ms(TimerKind.CHECK_QUORUM) == 3000
    assert [timeout_ms(TimerKind.SUCCESSION, halvings) for halvings in (2, 1, 0)] == [250, 500, 1000]


# ---- votes, by id and disk ----


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize(
    ("asked", "granted"), [(ReplicaKey(1, NEW_DISK), False), (TWO, False), (ReplicaKey(1), True), (ONE, True)]
)
def test_vote_is_given_by_who_was_asked(asked: ReplicaKey, granted: bool, pre_vote: bool) -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    effects = handle(q, VoteRequested(TWO, 3, LogEnd(), pre_vote, asked))
    assert effects[-1] == AnswerVote(TWO, 3, granted, pre_vote, NO_LEADER)
    assert q.epoch == 3


@pytest.mark.parametrize(
    ("voted", "candidate", "granted"),
    [
        (TWO, TWO, True),
        (ReplicaKey(2), TWO, True),  # of before directory ids were told
        (TWO, ReplicaKey(2), False),
        (TWO, ReplicaKey(2, NEW_DISK), False),
        (ReplicaKey(3), TWO, False),
    ],
)
def test_vote_was_given_to_a_disk(voted: ReplicaKey, candidate: ReplicaKey, granted: bool) -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(3, voted=voted))
    assert handle(q, VoteRequested(candidate, 3, LogEnd())) == [
        AnswerVote(candidate, 3, granted, pre_vote=False, leader_id=NO_LEADER)
    ]
    assert q.election.voted == voted


def test_voter_whose_disk_is_not_known_counts_once() -> None:
    """What it had before it lost its disk is gone: a majority isn't two lives of one voter."""
    q = quorum(ONE, *(ReplicaKey(id) for id in (1, 2, 3, 4, 5)))
    handle(q, TimedOut(), *(VoteAnswered(id, 0, granted=True, pre_vote=True) for id in (2, 3)))
    handle(q, *(VoteAnswered(id, 1, granted=True) for id in (2, 3)), Appended(LogEnd(1, 9)), MadeDurable(9))
    assert q.role is Role.LEADER
    assert handle(q, ReplicaFetched(TWO, 9), ReplicaFetched(ReplicaKey(2, NEW_DISK), 9)) == []
    assert handle(q, ReplicaFetched(THREE, 7)) == [Commit(7)]
    assert handle(q, ReplicaFetched(ReplicaKey(2, NEW_DISK), 3), ReplicaFetched(THREE, 9)) == []
    assert handle(q, ReplicaFetched(TWO, 8)) == [Commit(8)]  # the disk that fetched last counts


def test_one_voter_with_two_disks_is_no_majority_that_fetches() -> None:
    q = quorum(ONE, *(ReplicaKey(id) for id in (1, 2, 3, 4, 5)))
    handle(q, TimedOut(), *(VoteAnswered(id, 0, granted=True, pre_vote=True) for id in (2, 3)))
    handle(q, *(VoteAnswered(id, 1, granted=True) for id in (2, 3)))
    handle(q, ReplicaFetched(TWO, 0), ReplicaFetched(ReplicaKey(2, NEW_DISK), 0))
    assert StopLeading(1) in handle(q, TimedOut())


def test_observers_are_kept_in_mind_up_to_a_bound() -> None:
    q = leader_of_three()
    for id in range(REPLICAS_MAX + 10):
        handle(q, ReplicaFetched(ReplicaKey(100 + id, NEW_DISK), 0))
    assert len(q.replica_ends) == REPLICAS_MAX
    assert ReplicaKey(100 + REPLICAS_MAX + 9, NEW_DISK) in q.replica_ends


# ---- voters that come and go ----


def test_leader_that_is_no_voter_any_more_counts_the_others_only() -> None:
    q = leader_of_three()
    handle(q, Appended(LogEnd(1, 9)), MadeDurable(9), VotersChanged(voters(TWO, THREE)))
    assert handle(q, ReplicaFetched(TWO, 9)) == []  # one of two
    assert StopLeading(1) in handle(q, TimedOut())
    assert handle(q, TimedOut()) == [Remember(ElectionState(2)), SetTimer(TimerKind.ELECTION), FindLeader(2)]
    assert (q.role, q.leader_id) == (Role.UNATTACHED, NO_LEADER)
    assert handle(q, TimedOut()) == [SetTimer(TimerKind.ELECTION), FindLeader(2)]


def test_leader_that_is_no_voter_any_more_leads_on_while_the_voters_fetch() -> None:
    q = leader_of_three()
    handle(q, Appended(LogEnd(1, 9)), VotersChanged(voters(TWO, THREE)), ReplicaFetched(TWO, 9))
    assert handle(q, ReplicaFetched(THREE, 7)) == [Commit(7)]
    assert handle(q, TimedOut()) == [SetTimer(TimerKind.CHECK_QUORUM)]


def test_majority_is_that_of_the_last_voters_in_the_log_also_when_they_are_taken_back() -> None:
    q = leader_of_three()
    handle(q, VotersChanged(voters(ONE, TWO, THREE, FOUR)), Appended(LogEnd(1, 9)), MadeDurable(9))
    assert handle(q, ReplicaFetched(TWO, 9)) == []  # two of four
    assert handle(q, VotersChanged(voters(ONE, TWO, THREE))) == [Commit(9)]


@pytest.mark.parametrize("pre_vote", [True, False])
def test_who_stands_and_is_no_voter_any_more_is_not_elected(pre_vote: bool) -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, TimedOut())
    if not pre_vote:
        handle(q, VoteAnswered(2, 0, granted=True, pre_vote=True))
    role = q.role
    handle(q, VotersChanged(voters(TWO, THREE)))
    assert handle(q, VoteAnswered(2, q.epoch, granted=True, pre_vote=pre_vote)) == []
    assert handle(q, VoteAnswered(3, q.epoch, granted=True, pre_vote=pre_vote)) == []
    assert q.role is role


def test_vote_of_who_is_no_voter_any_more_does_not_count() -> None:
    q = quorum(ONE, ONE, TWO, THREE, FOUR, ReplicaKey(5))
    handle(q, TimedOut(), VoteAnswered(2, 0, granted=True, pre_vote=True))
    handle(q, VotersChanged(voters(ONE, THREE, FOUR, ReplicaKey(5))))
    assert handle(q, VoteAnswered(3, 0, granted=True, pre_vote=True)) == []
    assert handle(q, VoteAnswered(4, 0, granted=True, pre_vote=True))[0] == Remember(ElectionState(1, voted=ONE))


# ---- removed, and perhaps the only one who knows ----


def test_who_was_removed_stands_while_that_is_not_known_to_be_committed_and_counts_the_others_only() -> None:
    """Or nobody would lead: who remains lacks the record, and isn't voted for by who has it."""
    q = quorum(ONE, ONE, TWO, election=ElectionState(3))
    handle(q, Appended(LogEnd(3, 9)), VotersChanged(voters(TWO), before=voters(ONE, TWO), offset=8))
    assert handle(q, TimedOut())[-1] == AskVotes(3, LogEnd(3, 9), pre_vote=True, voter_ids=(2,))
    handle(q, VoteAnswered(2, 3, granted=True, pre_vote=True))
    handle(q, VoteAnswered(2, 4, granted=True))
    assert q.role is Role.LEADER


def test_who_was_removed_stands_no_longer_once_that_is_committed() -> None:
    q = quorum(ONE, ONE, TWO)
    handle(q, LeaderHeard(2, 3), Appended(LogEnd(3, 9)), VotersChanged(voters(TWO), before=voters(ONE, TWO), offset=8))
    handle(q, CommitHeard(3, 9))
    assert handle(q, TimedOut()) == [SetTimer(TimerKind.FETCH), FindLeader(3)]


def test_observer_whose_leader_fell_silent_grants_pre_votes() -> None:
    """It may be a voter by now, as the log of who asks has it."""
    q = quorum(TWO, ONE)
    handle(q, LeaderHeard(1, 4), CommitHeard(4, 0))
    asked = VoteRequested(ONE, 4, LogEnd(), pre_vote=True)
    assert not next(effect.granted for effect in handle(q, asked) if isinstance(effect, AnswerVote))
    handle(q, TimedOut())
    assert next(effect.granted for effect in handle(q, asked) if isinstance(effect, AnswerVote))


def test_pre_vote_of_who_takes_this_replica_for_the_leader_that_it_was_counts() -> None:
    q = quorum(ONE, ONE, TWO, election=ElectionState(4, voted=ONE))  # it led, resigned, stood again, and restarted
    handle(q, TimedOut())
    asked = handle(q, VoteAnswered(2, 4, granted=True, pre_vote=True, leader_id=1))
    assert asked[-1] == AskVotes(5, LogEnd(), pre_vote=False, voter_ids=(2,))
