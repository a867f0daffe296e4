"""Voters that come, go and move (KIP-853), as the leader decides it: one change at a time.

Two sets that differ by one voter have a majority in common in any two of their majorities; sets that differ by more
don't. So a change waits for nothing, it is refused, while the one before it isn't committed, and until this leader
committed something in its own epoch: only then is it sure that no older, unknown change can come back. A voter must
have caught up before it is added, or the quorum would wait for it. Who is refused for such a reason may ask again:
REQUEST_TIMED_OUT, as Kafka's.

A leader that removes itself leads on, without counting itself, until that is committed (`RaftDriver` resigns then).
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.env import Environment
from tidelog.env.loop import Timer
from tidelog.env.promise import Promise
from tidelog.raft.driver import RaftDriver
from tidelog.raft.progress import ReplicaProgress
from tidelog.raft.voters import ReplicaKey, Voter, VoterSet
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.uuids import ZERO_UUID, uuid_text

CAUGHT_UP_MS = 3000
"""A replica that has all there is as of so long ago may become a voter: what a leader waits for its majority."""

VersionsOf = Callable[[Voter], Promise[tuple[int, int]]]
"""The kraft.versions that a node can, both ends included: asked of the node itself, at its endpoint."""


class _Change(NamedTuple):
    """What was asked for and is not yet answered: at `offset` stands the record, or it isn't written yet."""

    epoch: int
    offset: int
    answer: Promise[None]
    timer: Timer


class Membership:
    """The changes of one replica's quorum, while it leads."""

    def __init__(
        self, env: Environment, driver: RaftDriver, progress: ReplicaProgress, listener: str, versions_of: VersionsOf
    ) -> None:
        self._env = env
        self._driver = driver
        self._progress = progress
        self._listener = listener
        self._versions_of = versions_of
        self._change: _Change | None = None
        driver.watch(self._look)

    # ---- requests; a promise that fails has the error to answer with ----

    def add(self, voter: Voter, timeout_ms: int, *, ack_when_committed: bool = True) -> Promise[None]:
        """Make a replica that follows a voter. Done when that is committed, or only written, as is asked."""
        error = self._not_here() or self._invalid(voter) or self._not_now()
        if error is None and voter.key.id in self._driver.voters.ids:
            error = KafkaError(
                ErrorCode.DUPLICATE_VOTER, f"node {voter.key.id} is a voter already: remove it before it is added"
            )
        if error is not None:
            return Promise[None].failed(error)
        change = self._begin(timeout_ms)

        def answered(promise: Promise[tuple[int, int]]) -> None:
            if self._change is not change:
                return  # it is over: no time was left, or another one leads
            refusal = self._unfit(voter, promise)
            if refusal is not None:
                self._end(refusal)
            else:
                self._write(self._driver.voters.added(voter))
                if not ack_when_committed:
                    self._end()

        self._versions_of(voter).on_done(answered)
        return change.answer

    def remove(self, key: ReplicaKey, timeout_ms: int) -> Promise[None]:
        """Take a voter out. Done when that is committed."""
        error = self._not_here()
        if error is None and (key.id < 0 or key.directory_id == ZERO_UUID):
            error = KafkaError(ErrorCode.INVALID_REQUEST, "a voter is named by its node id and its directory id")
        error = error or self._not_now()
        if error is None:
            voters = self._driver.voters
            if all(voter.key != key for voter in voters.voters):
                error = KafkaError(ErrorCode.VOTER_NOT_FOUND, f"{_named(key)} is none of the voters")
            elif len(voters.voters) == 1:
                error = KafkaError(ErrorCode.INVALID_REQUEST, f"{_named(key)} is the last voter")
        if error is not None:
            return Promise[None].failed(error)
        change = self._begin(timeout_ms)
        self._write(self._driver.voters.removed(key))
        return change.answer

    def update(self, voter: Voter, versions: tuple[int, int]) -> None:
        """A voter listens elsewhere, or can other versions. Done as soon as it is written; raises what is refused."""
        first, last = versions
        error = self._not_here() or self._invalid(voter)
        if error is None and not 0 <= first <= last:
            error = KafkaError(ErrorCode.INVALID_REQUEST, f"kraft.versions from {first} to {last}")
        error = error or self._not_now()
        if error is None and not first <= self._driver.kraft_version <= last:
            error = KafkaError(
                ErrorCode.INVALID_REQUEST, f"{_named(voter.key)} can't kraft.version {self._driver.kraft_version}"
            )
        known = self._driver.voters.get(voter.key.id)
        if error is None and (known is None or known.key != voter.key):
            error = KafkaError(ErrorCode.VOTER_NOT_FOUND, f"{_named(voter.key)} is none of the voters")
        if error is not None:
            raise error
        if known != voter:
            self._driver.append_voters(self._driver.voters.with_voter(voter))

    # ---- checks ----

    def _invalid(self, voter: Voter) -> KafkaError | None:
        if voter.key.id < 0 or voter.key.directory_id == ZERO_UUID:
            return KafkaError(ErrorCode.INVALID_REQUEST, "a voter is named by its node id and its directory id")
        if all(endpoint.name != self._listener for endpoint in voter.endpoints):
            return KafkaError(ErrorCode.INVALID_REQUEST, f"it has no endpoint for the listener {self._listener}")
        return None

    def _not_here(self) -> KafkaError | None:
        driver = self._driver
        if driver.leader_id != driver.local.key.id:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the quorum isn't led here")
        return None

    def _not_now(self) -> KafkaError | None:
        """Why the voters can't be changed by the leader at this time."""
        driver = self._driver
        if self._change is not None:
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way")
        if not driver.leads:
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the leader has committed nothing in its epoch yet")
        if driver.kraft_version < 1:
            return KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"kraft.version is {driver.kraft_version}: its voters are settings"
            )
        if not driver.voters_committed:
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters isn't committed yet")
        return None

    def _unfit(self, voter: Voter, versions: Promise[tuple[int, int]]) -> KafkaError | None:
        driver = self._driver
        if versions.error is not None:
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{_named(voter.key)} doesn't answer: {versions.error}")
        first, last = versions.result()
        if not first <= driver.kraft_version <= last:
            return KafkaError(
                ErrorCode.INVALID_REQUEST, f"{_named(voter.key)} can't kraft.version {driver.kraft_version}"
            )
        caught_up_ms = self._progress.of(driver.epoch, voter.key).caught_up_ms
        if caught_up_ms < self._env.clock.now_ms() - CAUGHT_UP_MS:
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{_named(voter.key)} has not caught up with the log")
        return None

    # ---- the change that is under way ----

    def _begin(self, timeout_ms: int) -> _Change:
        change = _Change(
            self._driver.epoch,
            -1,
            Promise(),
            self._env.loop.call_later(max(0, timeout_ms) / 1000, self._expire),
        )
        self._change = change
        return change

    def _write(self, voters: VoterSet) -> None:
        change = self._change
        assert change is not None
        try:
            offset = self._driver.append_voters(voters)
        except KafkaError as error:
            self._end(error)
            return
        if self._change is change:  # where one voter is enough, it may be committed already
            self._change = change._replace(offset=offset)
            self._look()

    def _look(self) -> None:
        change, driver = self._change, self._driver
        if change is None:
            return
        if 0 <= change.offset < driver.high_watermark and driver.epoch == change.epoch:
            self._end()
        elif driver.epoch != change.epoch or driver.leader_id != driver.local.key.id:
            self._end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node leads the quorum no longer"))

    def _expire(self) -> None:
        self._end(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the change of the voters wasn't committed in time"))

    def _end(self, error: KafkaError | None = None) -> None:
        change, self._change = self._change, None
        if change is None:
            return
        change.timer.cancel()
        if error is None:
            change.answer.resolve(None)
        else:
            change.answer.fail(error)


def _named(key: ReplicaKey) -> str:
    return f"node {key.id} with directory {uuid_text(key.directory_id)}"
