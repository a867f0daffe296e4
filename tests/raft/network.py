"""Voters on virtual time: a network that loses, delays, repeats and reorders, disks that forget what wasn't synced.

Nothing happens that the code under test didn't ask for: a timer fires where it was set and nothing replaced it, a
replica fetches from whom it was told to follow. After every event: one leader an epoch, epochs never fall, and nothing
that was committed anywhere ever changes.
"""

import random
from bisect import bisect_right
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from tidelog.raft.events import (
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
    MadeDurable,
    Remember,
    ReplicaFetched,
    SetTimer,
    Started,
    StopLeading,
    TimedOut,
    VoteAnswered,
    VoteRequested,
)
from tidelog.raft.fetch import Diverging, Fetch, Served, answer_fetch, cut_at
from tidelog.raft.quorum import Quorum, Role
from tidelog.raft.settings import RaftSettings
from tidelog.raft.voters import ReplicaKey, Voter, VoterSet

FETCH_EVERY_MS = 100
WRITE_EVERY_MS = 50
EVENTS_MAX = 100_000
HEALED_IN_MS = 6 * RaftSettings().election_timeout_ms * 2
"""Six times the longest election timeout: what a healed quorum may take to commit again."""


class Entry(NamedTuple):
    """A record: who leads writes it; `number` tells records of one epoch apart."""

    epoch: int
    number: int


class Fetched(NamedTuple):
    """What a leader answers to who `asked` for what is behind that end: entries, or how far the logs may agree."""

    leader_id: int
    epoch: int
    asked: LogEnd
    entries: tuple[Entry, ...]
    diverging: LogEnd | None
    high_watermark: int


class Replica:
    """One voter: what it wrote, what of it is synced, and its quorum while it is up."""

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.log: list[Entry] = []
        self.durable = 0
        self.election = ElectionState()
        self.quorum: Quorum | None = None
        self.timer: object = None
        self.following: tuple[int, int] | None = None

    @property
    def log_start(self) -> int:
        return 0

    @property
    def end(self) -> LogEnd:
        return LogEnd(self.log[-1].epoch if self.log else 0, len(self.log))

    def end_of_epoch(self, epoch: int) -> LogEnd:
        offset = bisect_right(self.log, epoch, key=lambda entry: entry.epoch)
        return LogEnd(self.log[offset - 1].epoch if offset else 0, offset)


class Network:
    """`chaos` says whether anything goes wrong; `blocked` are the ways, each in one direction, that lead nowhere."""

    def __init__(self, seed: int, count: int) -> None:
        self.random = random.Random(seed)
        self.settings = RaftSettings()
        self.now_ms = 0.0
        self.chaos = False
        # Each run suffers in its own way: what one kind of trouble hides, another brings to light.
        self.loss = self.random.choice((0.02, 0.1, 0.3))
        self.slow = self.random.choice((0.02, 0.1, 0.5))
        self.delay_ms = self.random.choice((20, 200))
        self.haste = self.random.choice((1, 0.2, 0.05))
        self.pause_ms = self.random.choice((50, 300, 1000))
        self.sync_ms = self.random.choice((10, 100, 500))
        self.blocked: set[tuple[int, int]] = set()
        keys = [ReplicaKey(id, bytes([id]) * 16) for id in range(1, count + 1)]
        self.voters = VoterSet(tuple(Voter(key) for key in keys))
        self.replicas = {key.id: Replica(key) for key in keys}
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._every(WRITE_EVERY_MS, self.write)
        for id in self.replicas:
            self.start(id)
            self._every(FETCH_EVERY_MS, lambda id=id: self.fetch(id))
            self._every(self.sync_ms, lambda id=id: self.sync(id))

    # ---- time ----

    def run(self, until_ms: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Go on until it is `done`, or so late; whether it was."""
        for _ in range(EVENTS_MAX):
            if done():
                return True
            if not self._agenda or self._agenda[0][0] > until_ms:
                self.now_ms = until_ms
                return False
            self.now_ms, _, action = heappop(self._agenda)
            action()
        raise AssertionError(f"{EVENTS_MAX} events, and it is {self.now_ms} ms")

    def _later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._numbers += 1
        heappush(self._agenda, (self.now_ms + delay_ms, self._numbers, action))

    def _every(self, period_ms: int, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self._later(period_ms * self.random.uniform(0.5, 1.5), again)

        self._later(self.random.uniform(0, period_ms), again)

    # ---- a replica's life ----

    def start(self, id: int) -> None:
        replica = self.replicas[id]
        if replica.quorum is None:
            replica.quorum = Quorum(replica.key, self.voters, replica.election, replica.end, durable=replica.durable)
            self.deliver(id, Started())

    def crash(self, id: int) -> None:
        """Down, and what wasn't synced may be lost."""
        replica = self.replicas[id]
        replica.quorum = replica.timer = replica.following = None
        del replica.log[self.random.randint(replica.durable, len(replica.log)) :]
        replica.durable = len(replica.log)

    def deliver(self, id: int, event: Event) -> None:
        quorum = self.replicas[id].quorum
        if quorum is None:
            return
        before = quorum.epoch, quorum.high_watermark
        for effect in quorum.handle(event):
            self._carry_out(id, effect)
        quorum.check_invariants()
        assert quorum.epoch >= before[0]
        remembered = self.replicas[id].election
        assert quorum.election == remembered or remembered.epoch < quorum.epoch == quorum.log_end.epoch
        assert quorum.high_watermark >= before[1]

    def _carry_out(self, id: int, effect: Effect) -> None:
        replica = self.replicas[id]
        key = replica.key
        match effect:
            case Remember(election):
                assert election.epoch >= replica.election.epoch
                replica.election = election
            case SetTimer():
                self._set_timer(replica, effect)
            case AskVotes(epoch, log_end, pre_vote, others):
                for other in others:
                    asked = self.replicas[other].key
                    self.send(id, other, VoteRequested(key, epoch, log_end, pre_vote, asked))
            case AnswerVote(candidate, epoch, granted, pre_vote, leader_id):
                self.send(id, candidate.id, VoteAnswered(id, epoch, granted, pre_vote, leader_id))
            case Lead(epoch, granting):
                assert len(granting) >= self.voters.majority
                assert self.leaders.setdefault(epoch, id) == id, f"epoch {epoch} has two leaders"
                assert replica.log[: len(self.committed)] == self.committed, "the leader lacks what is committed"
                self.append(id)
            case AnnounceLeader(epoch, others):
                for other in others:
                    self.send(id, other, LeaderHeard(id, epoch))
            case AnnounceEnd(epoch, others, successors):
                for other in others:
                    self.send(id, other, LeaderEnded(id, epoch, successors))
            case Commit(offset):
                seen = replica.log[:offset]
                shorter = min(len(seen), len(self.committed))
                assert seen[:shorter] == self.committed[:shorter], "what is committed changed"
                if len(seen) > len(self.committed):
                    self.committed = seen
            case Follow(leader_id, epoch):
                replica.following = leader_id, epoch
            case StopLeading() | FindLeader():
                pass

    def _set_timer(self, replica: Replica, effect: SetTimer) -> None:
        token = replica.timer = object()
        timeout_ms = self.settings.timeout_ms(effect, self.random.randint)
        if self.chaos:  # nothing that is promised depends on how long a timeout is
            timeout_ms *= self.haste * self.random.choice((0.1, 0.5, 1, 1, 2))

        def fire() -> None:
            if replica.timer is token:
                replica.timer = None
                self.deliver(replica.key.id, TimedOut())

        self._later(timeout_ms, fire)

    # ---- messages ----

    def send(self, sender: int, to: int, message: Event | Fetch | Fetched) -> None:
        if (sender, to) in self.blocked or (self.chaos and self.random.random() < self.loss):
            return
        for _ in range(2 if self.chaos and self.random.random() < 0.1 else 1):
            slow = self.chaos and self.random.random() < self.slow
            delay_ms = self.random.uniform(1, 5000 if slow else self.delay_ms if self.chaos else 20)
            self._later(delay_ms, lambda: self._arrive(to, message))

    def _arrive(self, id: int, message: Event | Fetch | Fetched) -> None:
        if isinstance(message, Fetch):
            self._answer_fetch(id, message)
        elif isinstance(message, Fetched):
            self._take(id, message)
        else:
            self.deliver(id, message)

    # ---- the log ----

    def append(self, id: int) -> None:
        replica = self.replicas[id]
        assert replica.quorum is not None
        self._numbers += 1
        replica.log.append(Entry(replica.quorum.epoch, self._numbers))
        self.deliver(id, Appended(replica.end))

    def write(self) -> None:
        for id in self.leading():
            self.append(id)

    def sync(self, id: int) -> None:
        replica = self.replicas[id]
        if replica.quorum is not None and replica.durable < len(replica.log):
            replica.durable = len(replica.log)
            self.deliver(id, MadeDurable(replica.durable))

    def fetch(self, id: int) -> None:
        """Who follows fetches behind what it has, once that is durable."""
        replica = self.replicas[id]
        quorum = replica.quorum
        if quorum is None or quorum.role is not Role.FOLLOWER or replica.durable < len(replica.log):
            return
        if replica.following == (quorum.leader_id, quorum.epoch):
            self.send(id, quorum.leader_id, Fetch(replica.key, quorum.epoch, replica.end))

    def _answer_fetch(self, id: int, fetch: Fetch) -> None:
        replica = self.replicas[id]
        quorum = replica.quorum
        if quorum is None:
            return
        offset = fetch.end.offset
        entries: tuple[Entry, ...] = ()
        diverging: LogEnd | None = None
        match answer_fetch(quorum, replica, (), fetch):
            case Served():
                entries = tuple(replica.log[offset : offset + (3 if self.chaos else 100)])
                self.deliver(id, ReplicaFetched(fetch.replica, offset))
            case Diverging(end):
                diverging = end
            case _:  # it learns whom to ask
                self.send(id, fetch.replica.id, LeaderHeard(quorum.leader_id, quorum.epoch))
                return
        answer = Fetched(id, quorum.epoch, fetch.end, entries, diverging, quorum.high_watermark)
        self.send(id, fetch.replica.id, answer)

    def _take(self, id: int, answer: Fetched) -> None:
        replica = self.replicas[id]
        quorum = replica.quorum
        if quorum is None or quorum.role is not Role.FOLLOWER or quorum.epoch != answer.epoch:
            return
        if replica.end != answer.asked:
            return  # an answer that came twice, or late
        self.deliver(id, LeaderHeard(answer.leader_id, answer.epoch))
        if answer.diverging is not None:
            agreed = cut_at(replica, answer.diverging)
            assert quorum.high_watermark <= agreed < len(replica.log), "too much would be cut, or nothing"
            del replica.log[agreed:]
            replica.durable = min(replica.durable, agreed)
        replica.log += answer.entries
        if replica.end != answer.asked:
            self.deliver(id, Appended(replica.end))
        if answer.diverging is None:
            self.deliver(id, CommitHeard(answer.epoch, answer.high_watermark))

    # ---- what happens to them ----

    def epoch(self, id: int) -> int:
        return self.replicas[id].election.epoch

    def high_watermark(self, id: int) -> int:
        quorum = self.replicas[id].quorum
        return 0 if quorum is None else quorum.high_watermark

    def leading(self) -> list[int]:
        quorums = [(id, replica.quorum) for id, replica in self.replicas.items()]
        return [id for id, quorum in quorums if quorum is not None and quorum.role is Role.LEADER]

    def misfortune(self) -> None:
        """Something that goes wrong, or is mended for a while."""
        draw = self.random.random()
        ids = list(self.replicas)
        id = self.random.choice(ids)
        if draw < 0.05:
            for each in ids:
                self.crash(each)
        elif draw < 0.35:
            self.crash(id)
        elif draw < 0.7:
            self.start(id)
        elif draw < 0.85:
            cut_off = self.random.sample(ids, len(ids) // 2)
            ways = [(a, b) for a in ids for b in ids if (a in cut_off) != (b in cut_off)]
            self.blocked = {way for way in ways if self.random.random() < 0.7}  # often one way only
        else:
            self.blocked = set()

    def suffer(self, for_ms: int) -> None:
        self.chaos = True
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms:
            self.run(self.now_ms + self.random.uniform(0, self.pause_ms))
            self.misfortune()
        self.chaos = False
        # Each run suffers in its own way: what one kind of trouble hides, another brings to light.
        self.loss = self.random.choice((0.02, 0.1, 0.3))
        self.slow = self.random.choice((0.02, 0.1, 0.5))
        self.delay_ms = self.random.choice((20, 200))
        self.haste = self.random.choice((1, 0.2, 0.05))
        self.pause_ms = self.random.choice((50, 300, 1000))
        self.sync_ms = self.random.choice((10, 100, 500))

    def heal(self, dead: int = 0) -> float:
        """Nothing goes wrong any more, but that so many voters stay down. After how long the rest commits again, ms."""
        self.blocked = set()
        gone = self.random.sample(list(self.replicas), dead)
        for id in self.replicas:
            self.crash(id) if id in gone else self.start(id)
        before, began_ms = len(self.committed), self.now_ms
        commits = self.run(began_ms + HEALED_IN_MS, lambda: len(self.committed) > before + 5)
        assert commits, "the healed quorum commits nothing"
        return self.now_ms - began_ms

    def assert_stable(self) -> None:
        """Where nothing goes wrong, who leads goes on leading."""
        before = [(id, self.epoch(id)) for id in self.leading()]
        self.run(self.now_ms + 20_000)
        assert [(id, self.epoch(id)) for id in self.leading()] == before
        assert len(before) == 1
