"""Copying partitions from one leader: a connection, a fetch session, and one request at a time (decision 0032).

A round is a fetch, its answer appended, and all of it made durable by one group commit; the next fetch tells the leader
so. What isn't durable after `LATE_S` leaves the session until it is, so that one slow disk doesn't hold the others up.
Partitions that can't be fetched now (an error, a log that is cut, one that has no room) leave it, too, and come back.

The logs are written here and nowhere else while another broker leads. Each answer is taken only where the partition is
as it was when it was asked for: in the same leader epoch, with the same end (`Partition.is_fetched`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.env.slices import Steps
from tidelog.replica.following import (
    SESSION_ERRORS,
    SESSION_UNKNOWN,
    LeaderSession,
    Limits,
    Reaction,
    reaction,
)
from tidelog.wire.errors import ErrorCode, KafkaError, error_code
from tidelog.wire.messages.fetch import FetchResponse, PartitionData
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.env.loop import Timer
    from tidelog.env.promise import Promise
    from tidelog.log.cutting import Cuts
    from tidelog.log.log import Log
    from tidelog.replica.following import Place
    from tidelog.replica.partition import Partition
    from tidelog.rpc.peer import Peer
    from tidelog.wire.topic_partition import TopicIdPartition

log = logging.getLogger("tidelog.replica")

LATE_S = 0.02
"""A round waits so long for its group commit; and so long the leader may wait while something isn't durable yet."""
SOON_S = 0.05
"""Until a partition is fetched again of which the leader, or this broker, hasn't heard yet."""
TRIES_TOLD = 3
"""In a row that fail, until that is told: brokers are restarted, and others lead soon where one dies."""
NAMED_MAX = 2000
"""Partitions that one request names: to write and to read it takes some 20 ms."""
LOOKS_A_STEP = 16
INTERRUPT_S = 0.02
INTERRUPT_AGAIN_S = 0.25
INTERRUPTED_MAX = 1000
"""A fetch that waits at the leader is given up for partitions that came meanwhile: after so long, so often at most, and
where no more partitions than these have to be named anew. What is moved to that leader would else wait with it."""
LATEST, EARLIEST = -1, -4
"""As ListOffsets has them; the earliest that is on the leader's own disk."""


class Around(Protocol):
    """What the fetchers of a broker share."""

    env: Environment
    node_id: int

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def broker_epoch(self) -> int: ...

    @property
    def cuts(self) -> Cuts: ...

    def peer(self, leader_id: int) -> Peer | None:
        """Where the leader listens for other brokers; None where nobody knows."""
        ...

    def hang_up(self, leader_id: int) -> None:
        """What was asked there isn't waited for any longer."""
        ...

    def answer_bytes(self) -> int:
        """How many bytes one answer may have, so that those of all leaders together are bounded."""
        ...


class State(Enum):
    """Of a partition here.

    Fetched <-> Unsynced (appended, and not durable yet); from Fetched to Resting, Finding and Cutting, and back; from
    all to Offline, which lasts.
    """

    FETCHED = "in the session"
    UNSYNCED = "waits for the group commit"
    RESTING = "is fetched again after a while"
    FINDING = "the leader is asked where its log begins and ends"
    CUTTING = "what the leader doesn't have is cut off"
    OFFLINE = "its log can't be written"


class Followed:
    """One partition that is copied. `failures` in a row; `told`: what of them is in the broker's log already."""

    __slots__ = ("failures", "key", "partition", "state", "told")

    def __init__(self, partition: Partition) -> None:
        self.key: TopicIdPartition = (partition.topic_id, partition.index)
        self.partition = partition
        self.state = State.RESTING
        self.failures = 0
        self.told: ErrorCode | None = None


class _Cut:
    """A log that is to be cut where the leader's log is another, unless it is another one itself by then."""

    __slots__ = ("_is_due", "_wanted", "asked", "followed")

    def __init__(self, followed: Followed, wanted: Callable[[], int], is_due: Callable[[Followed], bool]) -> None:
        self.followed = followed
        self.asked = followed.partition.place
        self._wanted = wanted
        self._is_due = is_due

    @property
    def log(self) -> Log:
        return self.followed.partition.log

    @property
    def has_changed(self) -> bool:
        """Whether the leader can be asked something else than before."""
        return self.log.offline is not None or self.followed.partition.place != self.asked

    def offset(self) -> int | None:
        partition = self.followed.partition
        if not self._is_due(self.followed) or not partition.is_fetched(self.asked):
            return None
        offset = self._wanted()
        partition.expect_cut(offset)
        return offset


class Fetcher:
    """Of one leader."""

    def __init__(self, around: Around, leader_id: int) -> None:
        self._around = around
        self._env = around.env
        self._loop = around.env.loop
        self._leader_id = leader_id
        self._session = LeaderSession()
        self._followed: dict[TopicIdPartition, Followed] = {}
        self._unsynced: dict[TopicIdPartition, Followed] = {}  # for these the round waits
        self._late: dict[TopicIdPartition, Followed] = {}  # for these it doesn't
        self._cuts: list[_Cut] = []  # that an answer, of which the rest is to be looked at, asks for
        self._busy = False  # a request is under way, or its answer is taken, or waits for the group commit
        self._asking = False  # a request is under way
        self._interrupting: Timer | None = None
        self._interrupted = False
        self._interrupt_from = 0.0
        self._scheduled = False
        self._stopped = False
        self._round_ends: Timer | None = None
        self._failures = 0
        self._away_told = False

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def followed(self) -> Mapping[TopicIdPartition, Followed]:
        return self._followed

    @property
    def _backoff_s(self) -> float:
        return self._around.config.replica_fetch_backoff_ms / 1000

    # -- what is followed

    def follow(self, partition: Partition) -> None:
        """Copy it from here on, in its present leader epoch."""
        followed = Followed(partition)
        self._forget(followed.key)
        self._followed[followed.key] = followed
        try:
            partition.follow(self)
        except KafkaError as error:
            self._rest(followed, error.code, error, self._backoff_s)
            return
        self._go_on(followed)

    def leave(self, key: TopicIdPartition) -> None:
        """It is led here, or by another broker, or is gone."""
        self._forget(key)

    def stop(self) -> None:
        """Nothing that is on its way is taken any more."""
        self._stopped = True
        for followed in self._followed.values():
            if followed.partition.follower is self:
                followed.partition.follower = None
        self._followed.clear()

    def _forget(self, key: TopicIdPartition) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            if followed.partition.follower is self:
                followed.partition.follower = None
            self._session.leave(key)
            self._synced(key)

    def _is_followed(self, followed: Followed) -> bool:
        return not self._stopped and self._followed.get(followed.key) is followed

    # -- where each is

    def _go_on(self, followed: Followed, *, in_round: bool = False) -> None:
        """Fetch it from its durable end on, as soon as that is its end. `in_round`: the next fetch waits for that."""
        log_ = followed.partition.log
        if log_.offline is not None:
            followed.state = State.OFFLINE
            self._session.leave(followed.key)
        elif log_.ends.durable_end < log_.ends.log_end:
            followed.state = State.UNSYNCED
            if in_round:
                self._unsynced[followed.key] = followed
            else:
                self._late[followed.key] = followed
        else:
            try:
                place = followed.partition.place
            except KafkaError as error:  # its leader epochs can't be read
                self._rest(followed, error.code, error, self._backoff_s)
                return
            followed.state = State.FETCHED
            self._session.fetch(followed.key, place)
            self._ask_soon()

    def log_changed(self, partition: Partition) -> None:
        followed = self._followed.get((partition.topic_id, partition.index))
        if followed is None or followed.partition is not partition:
            return
        log_ = partition.log
        is_durable = log_.ends.durable_end >= log_.ends.log_end
        if log_.offline is not None or (followed.state is State.UNSYNCED and is_durable):
            self._go_on(followed)
            self._synced(followed.key)

    def _synced(self, key: TopicIdPartition) -> None:
        """The group commit has it, or nobody waits for that any more."""
        self._late.pop(key, None)
        if self._unsynced.pop(key, None) is not None and not self._unsynced and self._round_ends is not None:
            self._end_round()

    def _rest(self, followed: Followed, code: ErrorCode, why: object, delay_s: float) -> None:
        """It isn't fetched for a while. What isn't likely to pass by itself is told, once until it has passed."""
        followed.state = State.RESTING
        followed.failures += 1
        self._session.leave(followed.key)
        if followed.told is not code and (delay_s > SOON_S or followed.failures * SOON_S > 5.0):
            followed.told = code
            log.warning(
                "%s isn't copied from broker %d for now: %s", followed.partition.log.place, self._leader_id, why
            )
        self._loop.call_later(delay_s, self._rested, followed)

    def _rested(self, followed: Followed) -> None:
        if self._is_followed(followed) and followed.state is State.RESTING:
            self._go_on(followed)

    def _went_well(self, followed: Followed) -> None:
        if followed.told is not None:
            log.info("%s is copied from broker %d again", followed.partition.log.place, self._leader_id)
            followed.told = None
        followed.failures = 0

    # -- asking

    def _ask_soon(self) -> None:
        if self._stopped:
            return
        if self._asking and self._interrupting is None and len(self._session) <= INTERRUPTED_MAX:
            delay_s = max(INTERRUPT_S, self._interrupt_from - self._env.clock.monotonic())
            self._interrupting = self._loop.call_later(delay_s, self._interrupt)
        elif not self._busy and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._ask)

    def _interrupt(self) -> None:
        """Ask anew, in a new session: whatever the answer to the old one would have said, this one says."""
        self._interrupting = None
        if self._asking and self._session.changed and not self._stopped:
            self._interrupted = True
            self._interrupt_from = self._env.clock.monotonic() + INTERRUPT_AGAIN_S
            self._around.hang_up(self._leader_id)

    def _ask(self) -> None:
        self._scheduled = False
        session = self._session
        if self._busy or self._stopped or not len(session):
            return
        peer = self._around.peer(self._leader_id)
        if peer is None:
            self._failed("nobody knows where it listens")
            return
        self._busy = self._asking = True
        config = self._around.config
        request = session.next_request(self._around.node_id, self._around.broker_epoch, self._limits(), NAMED_MAX)
        timeout_ms = config.replica_socket_timeout_ms + request.max_wait_ms
        peer.ask(request, timeout_ms).on_done(self._answered)

    def _limits(self) -> Limits:
        """The leader waits as long as it may where nothing here changes by itself meanwhile."""
        config = self._around.config
        wait_ms = config.replica_fetch_wait_max_ms
        if self._late:
            wait_ms = min(wait_ms, int(LATE_S * 1000))
        if self._session.changed > NAMED_MAX:
            wait_ms = 0
        return Limits(
            wait_ms, config.replica_fetch_min_bytes, self._around.answer_bytes(), config.replica_fetch_max_bytes
        )

    def _answered(self, promise: Promise[FetchResponse]) -> None:
        self._asking = False
        interrupted, self._interrupted = self._interrupted, False
        if self._interrupting is not None:
            self._interrupting.cancel()
            self._interrupting = None
        if self._stopped:
            return
        if promise.error is not None:
            self._session.lost(known=True)
            if interrupted:
                self._loop.call_soon(self._end_round)
            else:
                self._failed(promise.error)
            return
        response = promise.result()
        code = response.error_code
        if code:
            self._session.lost(known=code not in SESSION_UNKNOWN)
            if code in SESSION_ERRORS and not self._failures:
                self._failures = 1  # a second one in a row waits
                self._end_round()
            else:
                self._failed(f"it answers error {code}")
            return
        self._loop.drive(self._take(response)).on_done(partial(self._taken, response.session_id))

    def _failed(self, why: object) -> None:
        """The leader can't be asked: again after a while. Where it is dead, others lead soon."""
        self._busy = True
        self._failures += 1
        if not self._away_told and self._failures > TRIES_TOLD:
            self._away_told = True
            log.warning(
                "nothing is copied from broker %d for now (partitions: %d): %s", self._leader_id, len(self), why
            )
        longest_s = self._backoff_s
        self._loop.call_later(min(longest_s, SOON_S * 2 ** min(self._failures, 16)), self._end_round)

    # -- an answer

    def _take(self, response: FetchResponse) -> Steps[None]:
        """Take in what it says of each partition, in steps. New logs are begun off the loop first."""
        waits: list[Promise[None]] = []
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._followed.get((topic.topic_id, data.partition_index))
                if followed is not None and data.records:
                    begun = followed.partition.begin_following()
                    if begun is not None:
                        waits.append(begun)
                        yield
        for begun in waits:
            yield begun
        count = 0
        for topic in response.responses:
            for data in topic.partitions:
                self._take_partition((topic.topic_id, data.partition_index), data)
                count += 1
                if data.records or not count % LOOKS_A_STEP:
                    yield
                if self._stopped:
                    return

    def _take_partition(self, key: TopicIdPartition, data: PartitionData) -> None:
        followed, asked = self._followed.get(key), self._session.told(key)
        if data.records or data.error_code:
            self._session.sent(key)
        if (
            followed is None
            or asked is None
            or followed.state is not State.FETCHED
            or not followed.partition.is_fetched(asked)
        ):
            return
        try:
            if data.error_code:
                self._react(followed, data.error_code)
                return
            if data.diverging_epoch.epoch >= 0:
                end = data.diverging_epoch
                self._cut(followed, partial(followed.partition.parts_at, end.epoch, end.end_offset))
                return
            if data.records:
                followed.partition.append_fetched(memoryview(data.records), asked, self._env.clock.now_ms())  # type: ignore[arg-type]
            followed.partition.learn(data.high_watermark, data.log_start_offset)
        except KafkaError as error:
            if followed.partition.log.offline is None:
                self._rest(followed, error.code, error, self._backoff_s)
            else:
                self._go_on(followed)
            return
        except Exception as error:  # a bug of ours: the others are copied all the same
            log.exception("%s can't be copied", followed.partition.log.place)
            self._rest(followed, ErrorCode.UNKNOWN_SERVER_ERROR, error, self._backoff_s)
            return
        self._went_well(followed)
        self._go_on(followed, in_round=True)

    def _react(self, followed: Followed, code: int) -> None:
        match reaction(code):
            case Reaction.FIND:
                self._find(followed)
            case Reaction.SOON:
                delay_s = min(SOON_S, self._backoff_s)
                self._rest(followed, error_code(code), f"it answers {error_code(code).name}", delay_s)
            case Reaction.LATER:
                self._rest(followed, error_code(code), f"it answers {error_code(code).name}", self._backoff_s)

    # -- what the leader doesn't have

    def _cut(self, followed: Followed, wanted: Callable[[], int]) -> None:
        """Many are cut together: those that one answer tells of. The round goes on without them."""
        followed.state = State.CUTTING
        self._session.leave(followed.key)
        if not self._cuts:
            self._loop.call_soon(self._begin_cuts)
        self._cuts.append(_Cut(followed, wanted, self._is_cut))

    def _is_cut(self, followed: Followed) -> bool:
        return self._is_followed(followed) and followed.state is State.CUTTING

    def _begin_cuts(self) -> None:
        cuts, self._cuts = self._cuts, []
        self._loop.spread(self._around.cuts.cut(cuts)).on_done(partial(self._cuts_ended, cuts))

    def _cuts_ended(self, cuts: list[_Cut], done: Promise[None]) -> None:
        if done.error is not None:
            log.error("logs can't be cut to what broker %d has", self._leader_id, exc_info=done.error)
        for cut in cuts:
            followed = cut.followed
            if not self._is_cut(followed):
                continue
            if done.error is not None:
                self._rest(followed, ErrorCode.UNKNOWN_SERVER_ERROR, done.error, self._backoff_s)
            elif cut.has_changed:
                self._go_on(followed)
            else:
                self._rest(
                    followed,
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"its log parts from this one, but not where anything could be cut: {cut.asked}",
                    self._backoff_s,
                )

    # -- the end of a round

    def _taken(self, session_id: int, promise: Promise[None]) -> None:
        if self._stopped:
            return
        if promise.error is not None:
            log.error("an answer of broker %d can't be taken", self._leader_id, exc_info=promise.error)
            self._session.lost(known=True)
            self._failed(promise.error)
            return
        self._session.answered(session_id)
        self._failures = 0
        if self._away_told:
            self._away_told = False
            log.info("broker %d is asked again", self._leader_id)
        if not self._unsynced:
            self._end_round()
        else:
            self._round_ends = self._loop.call_later(LATE_S, self._round_is_late)

    def _round_is_late(self) -> None:
        for key in self._unsynced:
            self._session.leave(key)
        self._late.update(self._unsynced)
        self._unsynced.clear()
        self._end_round()

    def _end_round(self) -> None:
        if self._round_ends is not None:
            self._round_ends.cancel()
            self._round_ends = None
        self._busy = False
        self._ask_soon()

    # -- an offset that the leader doesn't have

    def _find(self, followed: Followed) -> None:
        followed.state = State.FINDING
        self._session.leave(followed.key)
        self._find_end(followed, followed.partition.place, LATEST, {})

    def _find_end(self, followed: Followed, asked: Place, timestamp: int, ends: dict[int, int]) -> None:
        peer = self._around.peer(self._leader_id)
        partition = followed.partition
        delay_s = self._backoff_s
        if peer is None:
            self._rest(followed, ErrorCode.BROKER_NOT_AVAILABLE, "nobody knows where it listens", delay_s)
            return
        request = ListOffsetsRequest(
            replica_id=self._around.node_id,
            topics=[
                ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.index,
                            current_leader_epoch=asked.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )

        def answered(promise: Promise[Any]) -> None:
            if not self._is_followed(followed) or followed.state is not State.FINDING:
                return
            try:
                data = promise.result().topics[0].partitions[0]
                if data.error_code:
                    raise KafkaError(error_code(data.error_code), f"its log's ends: {error_code(data.error_code).name}")
                if not partition.is_fetched(asked):
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it changed while its leader was asked")
                ends[timestamp] = data.offset
                if timestamp == LATEST and (data.offset >= partition.log.log_end or not partition.log.segments):
                    self._find_end(followed, asked, EARLIEST, ends)
                    return
                self._found(followed, ends)
            except Exception as error:
                code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
                self._rest(followed, code, error, delay_s)

        peer.ask(request, self._around.config.replica_socket_timeout_ms).on_done(answered)

    def _found(self, followed: Followed, ends: dict[int, int]) -> None:
        """Cut to the leader's end, or begin anew at its start; where neither is needed it is fetched as before. A log
        without a record has nothing to cut: one in memory goes on behind what it had before a restart."""
        partition = followed.partition
        log_end, is_empty = partition.log.log_end, not partition.log.segments
        if ends[LATEST] < log_end and not is_empty:
            self._cut(followed, lambda: ends[LATEST])
            return
        if ends[EARLIEST] > log_end or (is_empty and ends[LATEST] < log_end):
            partition.start_anew(ends[EARLIEST], self._env.clock.now_ms())
        self._go_on(followed)

    def check_invariants(self) -> None:
        self._session.check_invariants()
        for followed in self._followed.values():
            assert followed.partition.follower is self
        assert not self._late.keys() & self._unsynced.keys()
        unsynced = {key for key, followed in self._followed.items() if followed.state is State.UNSYNCED}
        assert unsynced == self._late.keys() | self._unsynced.keys()
