"""The quorum: who leads the metadata log in which epoch, and how far it is committed. Sans-IO.

How it works. An epoch has at most one leader. A replica that hears of no leader asks the voters whether they would
vote for it (pre-vote: PROSPECTIVE); when a majority would, it opens a new epoch and asks for the votes themselves
(CANDIDATE); with a majority of them it leads (LEADER) until it hears of a newer epoch, or a majority stops fetching
from it, or it steps down (RESIGNED); when nobody else leads soon, it stands again: it may be the only one whose log is
long enough. Everybody else follows (FOLLOWER), or knows of no leader, with its vote given in this epoch (VOTED) or not
(UNATTACHED).

Why it is safe:

1. *One vote an epoch.* `Remember` stands before every effect that shows a vote or an epoch to anybody, and is durable
   before them. `_grants` refuses whoever isn't the remembered one. Two majorities share a voter, so two candidates
   can't both win an epoch.
2. *An epoch never falls* (`_enter` asserts it), so a leader of an old epoch is refused by whoever knows of a newer one.
3. *A leader has all that is committed.* What is committed is durable at a majority; a vote goes only to a log that is
   at least as up to date as the voter's own (`LogEnd` orders by last epoch, then length); the two majorities share a
   voter.
4. *A leader commits by its own epoch only.* The high watermark moves once the LeaderChange that opens the epoch is
   durable at a majority (`_epoch_start`): what older epochs left counts as committed only below it, since a majority
   that holds old records alone could still be overruled (section 5.4.2 of the Raft paper).
5. *A leader without its majority stops.* Every check interval it must have been fetched from by a majority.
6. *A pre-vote opens no epoch and takes no vote*, so a replica that comes and goes doesn't unseat a leader. Who is asked
   in an epoch that is news to it enters that one: it was opened by who had a majority of pre-votes.

7. *Who votes* is what the last VotersRecord in the own log says, committed or not, and a voter is an id and a disk: who
   came back with an empty one is asked for nothing, and what it held before doesn't count for it. Who was removed by a
   record that isn't known to be committed may still stand, with the votes of those who remain: it may be the only one
   that has the record (section 4.2.2 of Ongaro's thesis).

Who has the connection to its leader broken waits for it but a moment: the process is dead, or a fetch on a new
connection is answered before. That opens no epoch by itself: a majority must have lost it.

A candidate that is refused waits but a while before it stands again, at random: where two stood at once, and a third is
dead, neither wins, and one of them is to come first the next time.

Who steps down names the others, the most up to date first: that one stands at once, each of the rest waits twice as
long as the one before it, so that they don't split the votes. An observer, or a voter whose log can't be written, waits
for a leader and never stands; an observer asks around for it (`FindLeader`).

A quorum of one voter takes the same way: its own vote is the majority, so it leads as soon as it is `Started`.
"""

from collections.abc import Sequence
from enum import Enum

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
    LeaderBroke,
    LeaderEnded,
    LeaderHeard,
    LogEnd,
    LogFailed,
    MadeDurable,
    Remember,
    ReplicaFetched,
    ReplicaHeard,
    Resigned,
    SetTimer,
    Started,
    StopLeading,
    TimedOut,
    TimerKind,
    VoteAnswered,
    VoteRequested,
    VotersChanged,
)
from tidelog.raft.voters import ReplicaKey, VoterSet

REPLICAS_MAX = 10_000
"""Replicas that a leader keeps in mind, observers too; of more, those that fetched last."""


class Role(Enum):
    UNATTACHED = "unattached"
    VOTED = "voted"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


# From each role, what it may become within its epoch, and on entering a newer one.
SAME_EPOCH: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.VOTED, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.VOTED: frozenset({Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.VOTED, Role.FOLLOWER}),
    Role.CANDIDATE: frozenset({Role.LEADER, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.LEADER: frozenset({Role.RESIGNED}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.PROSPECTIVE}),
    Role.RESIGNED: frozenset({Role.PROSPECTIVE}),
}
NEWER_EPOCH: dict[Role, frozenset[Role]] = {
    role: frozenset({Role.UNATTACHED, Role.VOTED, Role.FOLLOWER})
    | ({Role.CANDIDATE} if role is Role.PROSPECTIVE else set())
    for role in Role
}

_TIMERS: dict[Role, TimerKind] = {
    Role.UNATTACHED: TimerKind.ELECTION,
    Role.VOTED: TimerKind.ELECTION,
    Role.PROSPECTIVE: TimerKind.ELECTION,
    Role.CANDIDATE: TimerKind.ELECTION,
    Role.LEADER: TimerKind.CHECK_QUORUM,
    Role.FOLLOWER: TimerKind.FETCH,
    Role.RESIGNED: TimerKind.ELECTION,
}


class Quorum:
    """One replica's quorum. `handle(event)` is the only door; it answers with effects, to be done in order."""

    __slots__ = (
        "_durable",
        "_effects",
        "_epoch_start",
        "_fetched",
        "_given_up",
        "_granting",
        "_heard",
        "_log_failed",
        "_refused",
        "_voters_before",
        "_voters_offset",
        "election",
        "high_watermark",
        "local",
        "log_end",
        "replica_ends",
        "role",
        "voters",
    )

    def __init__(
        self,
        local: ReplicaKey,
        voters: VoterSet,
        election: ElectionState,
        log_end: LogEnd,
        *,
        durable: int | None = None,
        high_watermark: int = 0,
        voters_before: VoterSet | None = None,
        voters_offset: int = -1,
    ) -> None:
        # A replica that led or stood before it went down doesn't again in that epoch: it may have forgotten the tail.
        self.local = local
        self.voters = voters
        self._voters_before = voters_before
        self._voters_offset = voters_offset
        self.role: Role = Role.UNATTACHED if election.voted is None else Role.VOTED
        if election.leader_id != NO_LEADER:
            self.role = Role.RESIGNED if election.leader_id == local.id else Role.FOLLOWER
        if log_end.epoch > election.epoch:  # the log knows of a newer epoch than the file
            election = ElectionState(log_end.epoch)
            self.role = Role.UNATTACHED
        self.election = election
        self.log_end = log_end
        self.high_watermark = high_watermark
        self.replica_ends: dict[ReplicaKey, int] = {}
        self._durable = log_end.offset if durable is None else durable
        self._epoch_start = 0
        self._given_up = NO_LEADER  # the leader of this epoch that fell silent
        self._granting: set[int] = set()
        self._fetched = False  # whether the leader that is followed has answered a fetch
        self._refused = False  # whether a voter refused this candidate
        self._heard: set[ReplicaKey] = set()
        self._log_failed = False
        self._effects: list[Effect] = []

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def leader_id(self) -> int:
        """Who leads the epoch, as far as is known; NO_LEADER otherwise, also right after the own resignation."""
        return NO_LEADER if self.role is Role.RESIGNED else self.election.leader_id

    @property
    def hears_leader(self) -> bool:
        """Whether this replica leads, or the one that it follows answers. Who is no voter follows a dead one until it
        hears of another."""
        return self.role is Role.LEADER or (self.role is Role.FOLLOWER and self._fetched)

    def handle(self, event: Event) -> list[Effect]:
        match event:
            case Started():
                self._on_started()
            case TimedOut():
                self._on_timer()
            case VoteRequested():
                self._on_vote_requested(event)
            case VoteAnswered():
                self._on_vote_answered(event)
            case LeaderHeard(leader_id, epoch):
                self._on_leader_heard(leader_id, epoch)
            case LeaderEnded(leader_id, epoch, successors):
                if epoch == self.epoch and self.role is Role.FOLLOWER and leader_id == self.leader_id:
                    self._succeed(successors)
            case LeaderBroke(node_id):
                if self.role is Role.FOLLOWER and node_id == self.leader_id:
                    self._fetched = False  # whoever stands has its pre-vote, unless the leader is heard again
                    self._effects.append(SetTimer(TimerKind.BROKEN))
            case Appended(log_end):
                self.log_end = log_end
                self._durable = min(self._durable, log_end.offset)
            case MadeDurable(offset):
                self._durable = offset
                self._advance()
            case ReplicaFetched(replica, offset):
                self._on_fetched(replica, offset)
            case ReplicaHeard(replica):
                if self.role is Role.LEADER and self.voters.is_voter(replica):
                    self._heard.add(replica)
            case CommitHeard(epoch, offset):
                if self.role is Role.FOLLOWER and epoch == self.epoch:
                    self._fetched = True
                    self._commit(min(offset, self.log_end.offset))
            case VotersChanged(voters, before, offset):
                self.voters, self._voters_before, self._voters_offset = voters, before, offset
                self._advance()
            case Resigned():
                self._resign()
            case LogFailed():
                self._log_failed = True
                self._resign()
        effects, self._effects = self._effects, []
        return effects

    def check_invariants(self) -> None:
        """What holds between any two events; for tests and simulation."""
        assert self.high_watermark <= self.log_end.offset, (self.high_watermark, self.log_end)
        assert self._durable <= self.log_end.offset, (self._durable, self.log_end)
        if self.role in (Role.LEADER, Role.RESIGNED):
            assert self.election.leader_id == self.local.id
        if self.role is Role.CANDIDATE:
            assert self.election.voted == self.local
        if self.role is Role.FOLLOWER:
            assert self.election.leader_id not in (NO_LEADER, self.local.id)
        if self.role is Role.VOTED:
            assert self.election.voted is not None

    # ---- elections ----

    def _on_started(self) -> None:
        if self._can_lead and self.voters.is_voter(self.local) and len(self.voters.voters) == 1:
            self._stand()  # there is nobody to wait for
            return
        self._effects.append(SetTimer(_TIMERS[self.role]))
        if self.role is Role.FOLLOWER:
            self._effects.append(Follow(self.leader_id, self.epoch))
        elif not self._can_lead:
            self._effects.append(FindLeader(self.epoch))

    def _on_timer(self) -> None:
        if self.role is Role.LEADER:
            heard = {voter.id for voter in self._heard | {self.local} if self.voters.is_voter(voter)}
            if len(heard) < self.voters.majority:
                self._resign()
            else:
                self._heard.clear()
                self._effects.append(SetTimer(TimerKind.CHECK_QUORUM))
        else:
            self._stand()

    def _stand(self) -> None:
        """Ask whether the voters would vote for this replica.

        Who is no voter, or could not write what a leader writes, only goes on waiting for a leader.
        """
        if not self._can_lead:
            self._fetched = False  # the leader that it followed is silent: it stands in nobody's way
            if self.role is Role.RESIGNED and not self._log_failed:  # nobody may take it for the leader any longer
                self._enter(Role.UNATTACHED, ElectionState(self.epoch + 1))
            else:
                self._effects.append(SetTimer(_TIMERS[self.role]))
            if not self._log_failed:
                self._effects.append(FindLeader(self.epoch))
            return
        if self.role in (Role.FOLLOWER, Role.RESIGNED):  # it gave up on that leader: it follows nobody now
            self._given_up = self.election.leader_id
            voted = self.local if self.role is Role.RESIGNED else self.election.voted  # who led had its own vote
            self._enter(Role.PROSPECTIVE, ElectionState(self.epoch, NO_LEADER, voted))
        elif self.role is Role.PROSPECTIVE:
            self._effects.append(SetTimer(TimerKind.ELECTION))
        else:
            self._enter(Role.PROSPECTIVE, self.election)
        self._granting = self._own_vote
        if not self._count_votes():
            self._ask(pre_vote=True)

    @property
    def _can_lead(self) -> bool:
        if self._log_failed:
            return False
        if self.voters.is_voter(self.local):
            return True
        before = self._voters_before
        return before is not None and before.is_voter(self.local) and self.high_watermark <= self._voters_offset

    @property
    def _own_vote(self) -> set[int]:
        return {self.local.id} if self.voters.is_voter(self.local) else set()

    def _succeed(self, successors: Sequence[ReplicaKey]) -> None:
        """The leader stepped down: the first of those that it prefers stands now, the others one after the other."""
        self._fetched = False  # it answers no fetch any more: whoever stands before this replica has its pre-vote
        position = next((at for at, key in enumerate(successors) if key.is_same(self.local)), len(successors))
        if position == 0:
            self._stand()
        else:  # twice as long for each place; who isn't named waits longest
            self._effects.append(SetTimer(TimerKind.SUCCESSION, len(successors) - position))

    def _campaign(self) -> None:
        self._enter(Role.CANDIDATE, ElectionState(self.epoch + 1, NO_LEADER, self.local))
        self._granting = self._own_vote
        if not self._count_votes():
            self._ask(pre_vote=False)

    def _ask(self, *, pre_vote: bool) -> None:
        others = tuple(sorted(self.voters.ids - {self.local.id}))
        self._effects.append(AskVotes(self.epoch, self.log_end, pre_vote, others))

    def _count_votes(self) -> bool:
        """Go on where a majority granted; whether it did."""
        if self._can_lead and len(self._granting & self.voters.ids) >= self.voters.majority:
            self._campaign() if self.role is Role.PROSPECTIVE else self._lead()
            return True
        return False

    def _lead(self) -> None:
        granting = tuple(sorted(self._granting))
        self._enter(Role.LEADER, ElectionState(self.epoch, self.local.id))
        self._epoch_start = self.log_end.offset
        self.replica_ends = {}
        self._heard = set()
        self._effects.append(Lead(self.epoch, granting))
        others = tuple(sorted(self.voters.ids - {self.local.id}))
        if others:
            self._effects.append(AnnounceLeader(self.epoch, others))

    def _on_vote_requested(self, event: VoteRequested) -> None:
        if event.epoch > self.epoch:  # also of a pre-vote: who asks discards what is answered in an older epoch
            self._enter(Role.UNATTACHED, ElectionState(event.epoch))
        granted = self._grants(event)
        if granted and not event.pre_vote and self.election.voted is None:
            self._enter(Role.VOTED, ElectionState(self.epoch, NO_LEADER, event.candidate))
        self._effects.append(AnswerVote(event.candidate, self.epoch, granted, event.pre_vote, self.leader_id))

    def _grants(self, event: VoteRequested) -> bool:
        if event.epoch < self.epoch or event.log_end < self.log_end:
            return False
        if event.voter is not None and not event.voter.is_same(self.local):
            return False
        if event.pre_vote:
            # A leader that answers fetches stands. Without one, whoever is up to date would get the vote: also from who
            # was only told of a leader, or two that lost it would tell each other of it for ever.
            return self.role is not Role.LEADER and not (self.role is Role.FOLLOWER and self._fetched)
        if self.role in (Role.UNATTACHED, Role.VOTED, Role.PROSPECTIVE):
            return self.election.leader_id == NO_LEADER and self._may_vote_for(event.candidate)
        return False

    def _may_vote_for(self, candidate: ReplicaKey) -> bool:
        voted = self.election.voted
        return voted in (None, candidate, ReplicaKey(candidate.id))

    def _on_vote_answered(self, event: VoteAnswered) -> None:
        if event.epoch > self.epoch:
            self._on_leader_heard(event.leader_id, event.epoch)
            return
        standing = Role.PROSPECTIVE if event.pre_vote else Role.CANDIDATE
        if event.epoch != self.epoch or self.role is not standing or event.voter_id not in self.voters.ids:
            return
        # A leader that fell silent, or was this replica in an earlier life, may still be named by those who haven't
        # noticed; the leader itself is believed.
        if event.leader_id not in (NO_LEADER, self._given_up, self.local.id) or event.voter_id == event.leader_id:
            self._on_leader_heard(event.leader_id, event.epoch)
        elif event.granted:
            self._granting.add(event.voter_id)
            self._count_votes()
        elif not event.pre_vote and not self._refused:  # two stood at once, say, and neither may win
            self._refused = True
            self._effects.append(SetTimer(TimerKind.BACKOFF))

    def _on_leader_heard(self, leader_id: int, epoch: int) -> None:
        if leader_id in (NO_LEADER, self.local.id):
            if epoch > self.epoch:
                self._enter(Role.UNATTACHED, ElectionState(epoch))
            return
        if epoch < self.epoch:
            return
        if epoch == self.epoch and self.role is Role.FOLLOWER:
            assert leader_id == self.leader_id, f"epoch {epoch} has two leaders, {leader_id} and {self.leader_id}"
            self._effects.append(SetTimer(TimerKind.FETCH))
            return
        assert epoch > self.epoch or self.role not in (Role.LEADER, Role.RESIGNED), f"epoch {epoch} has two leaders"
        voted = self.election.voted if epoch == self.epoch else None
        self._enter(Role.FOLLOWER, ElectionState(epoch, leader_id, voted))
        self._effects.append(Follow(leader_id, epoch))

    def _resign(self) -> None:
        if self.role is not Role.LEADER:
            return
        self._enter(Role.RESIGNED, self.election)
        others = tuple(sorted(self.voters.ids - {self.local.id}))
        if others:
            ends = self._voter_ends()
            keys = [voter.key for voter in self.voters.voters if voter.key.id != self.local.id]
            successors = sorted(keys, key=lambda key: (-ends.get(key.id, -1), key.id))
            self._effects.append(AnnounceEnd(self.epoch, others, tuple(successors)))

    def _enter(self, role: Role, election: ElectionState) -> None:
        """Every change of role or epoch goes through here, where the tables are kept."""
        newer = election.epoch > self.epoch
        assert election.epoch >= self.epoch, f"epoch would fall from {self.epoch} to {election.epoch}"
        assert role in (NEWER_EPOCH if newer else SAME_EPOCH)[self.role], f"{self.role} may not become {role}"
        if self.role is Role.LEADER:
            self._effects.append(StopLeading(self.epoch))
        if election != self.election:
            # Nobody has seen a state that is overtaken before the next effect others can see: remember the last only.
            if self._effects and isinstance(self._effects[-1], SetTimer):
                self._effects.pop()
            if self._effects and isinstance(self._effects[-1], Remember):
                self._effects.pop()
            self._effects.append(Remember(election))
        if newer:
            self._given_up = NO_LEADER
        self._fetched = self._refused = False
        self.role, self.election = role, election
        self._effects.append(SetTimer(_TIMERS[role]))

    # ---- the high watermark ----

    def _on_fetched(self, replica: ReplicaKey, offset: int) -> None:
        if self.role is not Role.LEADER:
            return
        self.replica_ends.pop(replica, None)
        self.replica_ends[replica] = offset  # the last to fetch stands last
        if len(self.replica_ends) > REPLICAS_MAX:
            del self.replica_ends[next(iter(self.replica_ends))]
        if self.voters.is_voter(replica):
            self._heard.add(replica)
            self._advance()

    def _advance(self) -> None:
        if self.role is not Role.LEADER:
            return
        ends = sorted(self._voter_ends().values(), reverse=True)
        if len(ends) < self.voters.majority:
            return
        majority_end = min(ends[self.voters.majority - 1], self.log_end.offset)
        if majority_end > self._epoch_start:
            self._commit(majority_end)

    def _voter_ends(self) -> dict[int, int]:
        """How far each voter's log is durable, as far as is known. One voter counts once: where its directory id isn't
        known, what it fetched last counts, and not what it fetched with a disk that it lost."""
        ends = {replica.id: end for replica, end in self.replica_ends.items() if self.voters.is_voter(replica)}
        if self.voters.is_voter(self.local):
            ends[self.local.id] = self._durable
        return ends

    def _commit(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._effects.append(Commit(offset))
