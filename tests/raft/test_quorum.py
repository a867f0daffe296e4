"""The quorum: one voter alone, and several that crash, forget and time out."""

import pytest

from tidelog.raft.events import (
    NO_LEADER,
    AnnounceEnd,
    AnnounceLeader,
    AnswerVote,
    Appended,
    AskVotes,
    Commit,
    CommitHeard,
    Effect,
    ElectionState,
    Event,
    FindLeader,
    Follow,
    Lead,
    LeaderEnded,
    LeaderHeard,
    LogEnd,
    LogFailed,
    MadeDurable,
    Remember,
    ReplicaFetched,
    Resigned,
    SetTimer,
    Started,
    StopLeading,
    TimedOut,
    TimerKind,
    VoteAnswered,
    VoteRequested,
)
from tidelog.raft.quorum import NEWER_EPOCH, SAME_EPOCH, Quorum, Role
from tidelog.raft.settings import RaftSettings
from tidelog.raft.voters import ReplicaKey, Voter, VoterSet

ONE = ReplicaKey(1, b"directory-of-one")
TWO = ReplicaKey(2, b"directory-of-two")
THREE = ReplicaKey(3, b"directory-of-3rd")


def voters(*keys: ReplicaKey) -> VoterSet:
    return VoterSet(tuple(Voter(key) for key in keys))


def quorum(
    local: ReplicaKey = ONE, *keys: ReplicaKey, election: ElectionState | None = None, log_end: LogEnd | None = None
) -> Quorum:
    return Quorum(local, voters(*(keys or (local,))), election or ElectionState(), log_end or LogEnd())


def handle(q: Quorum, *events: Event) -> list[Effect]:
    effects: list[Effect] = []
    for event in events:
        effects = q.handle(event)
        q.check_invariants()
    return Effects(effects)


class Effects(list[Effect]):
    """Equal where the kinds are equal too: named tuples compare as tuples."""

    def __eq__(self, other: object) -> bool:
        return list.__eq__(self, other) and [*map(type, self)] == [*map(type, other)]

    __hash__ = None


def test_single_voter_elects_itself_in_a_new_epoch() -> None:
    q = quorum(election=ElectionState(4, leader_id=1), log_end=LogEnd(4, 100))
    assert handle(q, Started()) == [
        Remember(ElectionState(5, leader_id=1)),
        SetTimer(TimerKind.CHECK_QUORUM),
        Lead(5, (1,)),
    ]
    assert (q.role, q.epoch, q.leader_id) == (Role.LEADER, 5, 1)


def test_single_voter_commits_once_its_epoch_is_durable() -> None:
    q = quorum(log_end=LogEnd(3, 100))
    handle(q, Started())
    assert handle(q, MadeDurable(100)) == []  # only what older epochs left
    assert handle(q, Appended(LogEnd(4, 101))) == []
    assert handle(q, MadeDurable(101)) == [Commit(101)]
    assert handle(q, Appended(LogEnd(4, 105)), MadeDurable(103)) == [Commit(103)]


def test_log_of_a_newer_epoch_than_the_file_counts() -> None:
    q = quorum(election=ElectionState(2, leader_id=1), log_end=LogEnd(6, 10))
    handle(q, Started())
    assert q.epoch == 7


def test_single_voter_goes_on_leading_when_its_check_interval_ends() -> None:
    q = quorum()
    handle(q, Started())
    assert handle(q, TimedOut()) == [SetTimer(TimerKind.CHECK_QUORUM)]


def test_candidate_of_three_asks_first_whether_it_would_be_elected() -> None:
    q = quorum(ONE, ONE, TWO, THREE, log_end=LogEnd(1, 5))
    assert handle(q, TimedOut()) == [
        SetTimer(TimerKind.ELECTION),
        AskVotes(1, LogEnd(1, 5), pre_vote=True, voter_ids=(2, 3)),
    ]
    assert handle(q, VoteAnswered(2, 1, granted=True, pre_vote=True)) == [
        Remember(ElectionState(2, voted=ONE)),
        SetTimer(TimerKind.ELECTION),
        AskVotes(2, LogEnd(1, 5), pre_vote=False, voter_ids=(2, 3)),
    ]
    assert handle(q, VoteAnswered(3, 2, granted=True)) == [
        Remember(ElectionState(2, leader_id=1)),
        SetTimer(TimerKind.CHECK_QUORUM),
        Lead(2, (1, 3)),
        AnnounceLeader(2, (2, 3)),
    ]


def test_refused_candidate_waits_for_its_timer() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, TimedOut(), VoteAnswered(2, 0, granted=True, pre_vote=True))
    assert handle(q, VoteAnswered(2, 1, granted=False), VoteAnswered(3, 1, granted=False)) == []
    assert q.role is Role.CANDIDATE


def test_candidate_that_is_refused_stands_again_soon() -> None:
    """Two stood at once, and the third is dead: whose wait is the shorter one wins the next time."""
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, TimedOut(), VoteAnswered(3, 0, granted=True, pre_vote=True))
    assert handle(q, VoteAnswered(2, 1, granted=False)) == [SetTimer(TimerKind.BACKOFF)]
    assert handle(q, VoteAnswered(3, 1, granted=False)) == [], "the wait isn't begun anew"
    assert handle(q, TimedOut()) == [
        SetTimer(TimerKind.ELECTION),
        AskVotes(1, LogEnd(), pre_vote=True, voter_ids=(2, 3)),
    ]


def test_wait_after_a_refusal_is_random_and_no_longer_than_its_setting() -> None:
    settings = RaftSettings(election_backoff_max_ms=400)
    bounds = [
        settings.timeout_ms(SetTimer(TimerKind.BACKOFF), pick) for pick in (lambda low, _: low, lambda _, high: high)
    ]
    assert bounds == [100, 400]


def test_vote_is_remembered_before_it_is_told() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    assert handle(q, VoteRequested(TWO, 3, LogEnd(0, 0))) == [
        Remember(ElectionState(3, voted=TWO)),
        SetTimer(TimerKind.ELECTION),
        AnswerVote(TWO, 3, granted=True, pre_vote=False, leader_id=NO_LEADER),
    ]
    assert handle(q, VoteRequested(THREE, 3, LogEnd(9, 9))) == [
        AnswerVote(THREE, 3, granted=False, pre_vote=False, leader_id=NO_LEADER)
    ]
    assert handle(q, VoteRequested(TWO, 3, LogEnd(0, 0))) == [
        AnswerVote(TWO, 3, granted=True, pre_vote=False, leader_id=NO_LEADER)
    ]


def test_vote_of_before_the_restart_still_stands() -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(3, voted=TWO))
    assert handle(q, VoteRequested(THREE, 3, LogEnd(9, 9))) == [
        AnswerVote(THREE, 3, granted=False, pre_vote=False, leader_id=NO_LEADER)
    ]


@pytest.mark.parametrize("candidate_end", [LogEnd(2, 99), LogEnd(3, 49)])
def test_candidate_with_a_log_behind_gets_no_vote(candidate_end: LogEnd) -> None:
    q = quorum(ONE, ONE, TWO, THREE, log_end=LogEnd(3, 50))
    effects = handle(q, VoteRequested(TWO, 4, candidate_end))
    assert effects[-1] == AnswerVote(TWO, 4, granted=False, pre_vote=False, leader_id=NO_LEADER)


def test_pre_vote_changes_nothing() -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(7))
    for candidate in (TWO, THREE):
        assert handle(q, VoteRequested(candidate, 7, LogEnd(0, 0), pre_vote=True)) == [
            AnswerVote(candidate, 7, granted=True, pre_vote=True, leader_id=NO_LEADER)
        ]
    assert (q.role, q.election) == (Role.UNATTACHED, ElectionState(7))


def test_pre_vote_across_epochs_is_given_in_the_newer_one_and_counted_by_who_asked() -> None:
    """Who asks discards what is answered in an older epoch: the voter learns of the newer one first."""
    asking = quorum(ONE, ONE, TWO, THREE, election=ElectionState(7))
    asked = quorum(TWO, ONE, TWO, THREE, election=ElectionState(3, voted=THREE))
    assert handle(asking, TimedOut())[-1] == AskVotes(7, LogEnd(), pre_vote=True, voter_ids=(2, 3))
    answer = AnswerVote(ONE, 7, granted=True, pre_vote=True, leader_id=NO_LEADER)
    assert handle(asked, VoteRequested(ONE, 7, LogEnd(), pre_vote=True)) == [
        Remember(ElectionState(7)),
        SetTimer(TimerKind.ELECTION),
        answer,
    ]
    counted = handle(asking, VoteAnswered(2, answer.epoch, answer.granted, answer.pre_vote, answer.leader_id))
    assert counted[-1] == AskVotes(8, LogEnd(), pre_vote=False, voter_ids=(2, 3))


@pytest.mark.parametrize("candidate_end", [LogEnd(4, 9), LogEnd(3, 50)])
def test_pre_vote_of_a_newer_epoch_ends_an_older_leader_whatever_is_answered(candidate_end: LogEnd) -> None:
    """Somebody opened that epoch, with a majority that would vote for it."""
    q = leader_of_three()
    handle(q, Appended(LogEnd(3, 60)))
    granted = candidate_end.epoch > 3
    assert handle(q, VoteRequested(TWO, 4, candidate_end, pre_vote=True)) == [
        StopLeading(1),
        Remember(ElectionState(4)),
        SetTimer(TimerKind.ELECTION),
        AnswerVote(TWO, 4, granted=granted, pre_vote=True, leader_id=NO_LEADER),
    ]


def test_follower_that_hears_its_leader_refuses_pre_votes() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    assert handle(q, LeaderHeard(2, 4)) == [
        Remember(ElectionState(4, leader_id=2)),
        SetTimer(TimerKind.FETCH),
        Follow(2, 4),
    ]
    handle(q, CommitHeard(4, 0))
    assert handle(q, VoteRequested(THREE, 4, LogEnd(9, 9), pre_vote=True)) == [
        AnswerVote(THREE, 4, granted=False, pre_vote=True, leader_id=2)
    ]


def test_leader_of_an_old_epoch_is_not_followed() -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(5))
    assert handle(q, LeaderHeard(2, 4)) == []


def test_leader_stops_when_it_hears_of_a_newer_epoch() -> None:
    q = leader_of_three()
    assert handle(q, LeaderHeard(3, 9)) == [
        StopLeading(1),
        Remember(ElectionState(9, leader_id=3)),
        SetTimer(TimerKind.FETCH),
        Follow(3, 9),
    ]


def test_leader_without_its_majority_stops() -> None:
    q = leader_of_three()
    handle(q, ReplicaFetched(TWO, 0))
    assert handle(q, TimedOut()) == [SetTimer(TimerKind.CHECK_QUORUM)]
    assert StopLeading(1) in handle(q, TimedOut())
    assert q.leader_id == NO_LEADER


def test_follower_stands_when_its_leader_steps_down() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 4))
    effects = handle(q, LeaderEnded(2, 4))
    assert effects[-1] == AskVotes(4, LogEnd(), pre_vote=True, voter_ids=(2, 3))


@pytest.mark.parametrize("ended", [LeaderEnded(2, 3), LeaderEnded(2, 5), LeaderEnded(3, 4)])
def test_follower_goes_on_when_it_is_not_its_leader_that_steps_down(ended: LeaderEnded) -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 4))
    assert handle(q, ended) == []
    assert (q.role, q.leader_id) == (Role.FOLLOWER, 2)


def test_who_has_voted_does_not_stand_because_somebody_steps_down() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, VoteRequested(TWO, 4, LogEnd()))
    assert handle(q, LeaderEnded(2, 4), LeaderEnded(NO_LEADER, 4)) == []
    assert q.role is Role.VOTED


def test_who_gets_no_answer_asks_again_when_its_timer_ends() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    asked = AskVotes(0, LogEnd(), pre_vote=True, voter_ids=(2, 3))
    assert handle(q, TimedOut()) == [SetTimer(TimerKind.ELECTION), asked]
    assert handle(q, TimedOut()) == [SetTimer(TimerKind.ELECTION), asked]


def test_high_watermark_is_what_a_majority_holds() -> None:
    q = leader_of_three()
    handle(q, Appended(LogEnd(1, 10)))
    assert handle(q, MadeDurable(10)) == []
    assert handle(q, ReplicaFetched(TWO, 4)) == [Commit(4)]
    assert handle(q, ReplicaFetched(THREE, 8)) == [Commit(8)]
    assert handle(q, ReplicaFetched(TWO, 2)) == []  # never falls
    assert handle(q, ReplicaFetched(THREE, 10)) == [Commit(10)]


def test_observer_counts_for_nothing() -> None:
    q = leader_of_three()
    handle(q, Appended(LogEnd(1, 10)), MadeDurable(10))
    assert handle(q, ReplicaFetched(ReplicaKey(9, b"an observer's id"), 10)) == []
    assert handle(q, ReplicaFetched(ReplicaKey(2, b"a disk of before"), 10)) == []


def test_follower_commits_what_it_has() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 1), Appended(LogEnd(1, 5)))
    assert handle(q, CommitHeard(1, 3)) == [Commit(3)]
    assert handle(q, CommitHeard(1, 9)) == [Commit(5)]


@pytest.mark.parametrize("epoch", [0, 2])
def test_follower_commits_nothing_that_is_heard_of_another_epoch(epoch: int) -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 1), Appended(LogEnd(1, 5)))
    assert handle(q, CommitHeard(epoch, 4)) == []
    assert q.high_watermark == 0


def test_who_gave_up_on_its_leader_commits_nothing_that_is_heard_of_it() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 1), Appended(LogEnd(1, 5)), TimedOut())
    assert q.role is Role.PROSPECTIVE
    assert handle(q, CommitHeard(1, 4)) == []


def test_log_of_a_newer_epoch_forgets_whom_the_file_follows() -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(2, leader_id=2), log_end=LogEnd(6, 10))
    assert (q.role, q.epoch, q.leader_id) == (Role.UNATTACHED, 6, NO_LEADER)


def test_log_of_the_files_epoch_leaves_the_vote_as_it_is() -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(3, voted=TWO), log_end=LogEnd(3, 10))
    assert handle(q, VoteRequested(THREE, 3, LogEnd(9, 9))) == [
        AnswerVote(THREE, 3, granted=False, pre_vote=False, leader_id=NO_LEADER)
    ]


def test_who_is_no_voter_asks_around_for_a_leader_and_for_no_vote() -> None:
    q = quorum(ReplicaKey(4, b"directory-of-4th"), ONE, TWO, THREE)
    assert handle(q, TimedOut()) == [SetTimer(TimerKind.ELECTION), FindLeader(0)]
    assert q.role is Role.UNATTACHED
    handle(q, LeaderHeard(2, 4))
    assert handle(q, TimedOut()) == [SetTimer(TimerKind.FETCH), FindLeader(4)]
    assert q.leader_id == 2


def test_leader_that_fell_silent_is_followed_again_on_its_own_word_only() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 4), TimedOut())
    assert handle(q, VoteAnswered(3, 4, granted=False, pre_vote=True, leader_id=2)) == []
    assert handle(q, VoteAnswered(2, 4, granted=False, pre_vote=True, leader_id=2))[-1] == Follow(2, 4)


def test_candidate_that_is_told_of_a_newer_leader_follows_it() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, TimedOut(), VoteAnswered(2, 0, granted=True, pre_vote=True))
    assert handle(q, VoteAnswered(2, 7, granted=False, leader_id=3)) == [
        Remember(ElectionState(7, leader_id=3)),
        SetTimer(TimerKind.FETCH),
        Follow(3, 7),
    ]


def test_leader_of_a_later_epoch_counts_nothing_that_it_heard_in_an_earlier_one() -> None:
    q = leader_of_three()
    handle(q, Appended(LogEnd(1, 10)), MadeDurable(10), ReplicaFetched(TWO, 10))
    handle(q, Resigned(), TimedOut(), VoteAnswered(3, 1, granted=True, pre_vote=True), VoteAnswered(3, 2, granted=True))
    assert (q.role, q.epoch) == (Role.LEADER, 2)
    assert handle(q, Appended(LogEnd(2, 12)), MadeDurable(12)) == []
    assert q.replica_ends == {}
    assert StopLeading(2) in handle(q, TimedOut())


def test_who_is_told_of_the_leader_by_others_follows_it() -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(4))
    handle(q, TimedOut())
    assert handle(q, VoteAnswered(2, 4, granted=False, pre_vote=True, leader_id=3))[-1] == Follow(3, 4)


def test_leader_that_fell_silent_in_an_earlier_epoch_is_believed_in_a_later_one() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 4), TimedOut(), VoteRequested(THREE, 5, LogEnd()), TimedOut())
    assert q.role is Role.PROSPECTIVE
    assert handle(q, VoteAnswered(3, 5, granted=False, pre_vote=True, leader_id=2))[-1] == Follow(2, 5)


def test_each_word_of_the_leader_sets_the_timer_anew() -> None:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, LeaderHeard(2, 4))
    assert handle(q, LeaderHeard(2, 4)) == [SetTimer(TimerKind.FETCH)]


@pytest.mark.parametrize(("epoch", "kept"), [(3, TWO), (4, None)])
def test_vote_is_remembered_beside_the_leader_of_its_epoch_only(epoch: int, kept: ReplicaKey | None) -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(3, voted=TWO))
    assert handle(q, LeaderHeard(2, epoch))[0] == Remember(ElectionState(epoch, leader_id=2, voted=kept))


def test_leader_that_resigns_tells_the_others_and_who_does_not_lead_has_nothing_to_resign() -> None:
    assert handle(leader_of_three(), Resigned()) == [
        StopLeading(1),
        SetTimer(TimerKind.ELECTION),
        AnnounceEnd(1, (2, 3), (TWO, THREE)),
    ]
    alone = quorum()
    handle(alone, Started())
    assert handle(alone, Resigned()) == [StopLeading(1), SetTimer(TimerKind.ELECTION)]
    follower = quorum(ONE, ONE, TWO, THREE)
    handle(follower, LeaderHeard(2, 4))
    assert handle(follower, Resigned()) == []
    assert follower.role is Role.FOLLOWER


def test_who_does_not_lead_counts_no_replicas_and_commits_nothing_by_itself() -> None:
    q = leader_of_three()
    handle(q, Appended(LogEnd(1, 10)), ReplicaFetched(TWO, 10), LeaderHeard(3, 2))
    before = dict(q.replica_ends)
    assert handle(q, MadeDurable(10)) == []
    assert handle(q, ReplicaFetched(THREE, 10)) == []
    assert (q.high_watermark, q.replica_ends) == (0, before)


def test_resigned_leader_does_not_vote_in_its_epoch() -> None:
    q = leader_of_three()
    assert handle(q, Resigned())[0] == StopLeading(1)
    assert handle(q, VoteRequested(TWO, 1, LogEnd(9, 9))) == [
        AnswerVote(TWO, 1, granted=False, pre_vote=False, leader_id=NO_LEADER)
    ]


def test_resigned_leader_stands_again_when_its_timer_ends_and_still_has_given_its_vote() -> None:
    q = leader_of_three()
    handle(q, Resigned())
    assert handle(q, TimedOut()) == [
        Remember(ElectionState(1, voted=ONE)),
        SetTimer(TimerKind.ELECTION),
        AskVotes(1, LogEnd(), pre_vote=True, voter_ids=(2, 3)),
    ]
    assert handle(q, VoteRequested(TWO, 1, LogEnd(9, 9))) == [  # with this vote there could be a second leader
        AnswerVote(TWO, 1, granted=False, pre_vote=False, leader_id=NO_LEADER)
    ]


@pytest.mark.parametrize("event", [TimedOut(), LeaderEnded(2, 4)])
def test_who_cannot_write_its_log_does_not_stand(event: Event) -> None:
    q = leader_of_three()
    assert handle(q, LogFailed())[0] == StopLeading(1)
    assert handle(q, TimedOut()) == [SetTimer(TimerKind.ELECTION)]
    handle(q, LeaderHeard(2, 4))
    assert handle(q, event) == [SetTimer(TimerKind.FETCH)]


def test_who_led_before_its_restart_neither_leads_nor_votes_in_that_epoch_but_stands_when_its_timer_ends() -> None:
    q = quorum(ONE, ONE, TWO, THREE, election=ElectionState(4, leader_id=1), log_end=LogEnd(4, 9))
    assert handle(q, Started()) == [SetTimer(TimerKind.ELECTION)]
    assert handle(q, VoteRequested(TWO, 4, LogEnd(9, 9))) == [
        AnswerVote(TWO, 4, granted=False, pre_vote=False, leader_id=NO_LEADER)
    ]
    assert handle(q, TimedOut())[-1] == AskVotes(4, LogEnd(4, 9), pre_vote=True, voter_ids=(2, 3))


def test_who_starts_among_others_waits_for_a_leader_first() -> None:
    assert handle(quorum(ONE, ONE, TWO, THREE), Started()) == [SetTimer(TimerKind.ELECTION)]
    follower = quorum(ONE, ONE, TWO, THREE, election=ElectionState(4, leader_id=2))
    assert handle(follower, Started()) == [SetTimer(TimerKind.FETCH), Follow(2, 4)]


def test_every_role_stands_in_the_tables() -> None:
    assert set(SAME_EPOCH) == set(NEWER_EPOCH) == set(Role)


def leader_of_three() -> Quorum:
    q = quorum(ONE, ONE, TWO, THREE)
    handle(q, TimedOut(), VoteAnswered(2, 0, granted=True, pre_vote=True), VoteAnswered(2, 1, granted=True))
    assert q.role is Role.LEADER
    return q
