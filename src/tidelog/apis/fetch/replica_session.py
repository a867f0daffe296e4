"""The fetch sessions of followers: which partitions each of them copies from here, and which of them have news.

A partition tells the sessions that it is in of what happens to it (`Followed`), and each session keeps the list of
those that have something to say, so that a fetch costs by what changed and not by what there is: most of 10,000
partitions have nothing to say most of the time. What can wait (a moved log start, a high watermark for a follower that
doesn't say which one it knows, an error that was told) is on a list of its own, and goes with the next answer.

A partition that a request doesn't name keeps its place: where nothing was sent since, the follower still has all that
it asked for; where records were, it is busy with them, and gets no others before it names the partition again, or has
sent so many requests without naming it that it can't have taken them (`SENT_AGAIN_AFTER`).

A session belongs to one registration of a broker: one that came back opens another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.apis.bounds import REPLICA_SESSIONS_MAX, SESSION_PARTITIONS_MAX, SESSIONS_PARTITIONS_MAX
from tidelog.env.slices import Steps
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.env import Environment
    from tidelog.metadata.image import ClusterImage
    from tidelog.replica.partition import Partition
    from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData, ReplicaState
    from tidelog.wire.topic_partition import AnyTopicPartition

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
IDS_FROM = 13
NOT_TOLD = 2**63 - 1
"""The high watermark of a follower that doesn't tell which one it knows."""
DROPPED_A_STEP = 256
SENT_AGAIN_AFTER = 16
"""Requests: a follower with very much to name names some of it in each."""


def problem_of(data: PartitionData) -> object:
    """What is answered instead of records: an error, or where the logs part. None: neither."""
    parted = data.diverging_epoch
    if not data.error_code and parted.epoch < 0:
        return None
    return data.error_code, parted.epoch, parted.end_offset


class Waiting(Protocol):
    """The request of a session that isn't answered yet."""

    def wake(self) -> None:
        """There is something to say."""
        ...

    def supersede(self) -> None:
        """The follower went on without its answer."""
        ...

    def expire(self) -> None: ...


class Followed:
    """One partition in a session."""

    __slots__ = (
        "asked",
        "at_end",
        "fresh",
        "key",
        "known_high_watermark",
        "partition",
        "sent",
        "session",
        "told_high_watermark",
        "told_problem",
        "told_start",
    )

    def __init__(self, session: ReplicaSession, key: AnyTopicPartition, asked: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.partition: Partition | None = None
        """Once it was found."""
        self.told_high_watermark = self.told_start = -1
        self.told_problem: object = None
        """What was answered instead of records, an error or a diverging epoch, when it was answered last."""
        self.name(asked)

    def name(self, asked: FetchPartition) -> None:
        """A request names it."""
        self.asked = asked
        self.fresh = True
        """What it asks for wasn't looked at yet."""
        self.sent = False
        """Records were sent since."""
        self.at_end = False
        """The follower has all that the leader has."""
        self.known_high_watermark = (
            self.told_high_watermark if asked.high_watermark == NOT_TOLD else asked.high_watermark
        )

    def found(self, partition: Partition) -> None:
        if self.partition is not partition:
            self.leave()
            self.partition = partition
            partition.add_reader(self)

    def leave(self) -> None:
        partition, self.partition = self.partition, None
        if partition is not None:
            partition.remove_reader(self)

    @property
    def hears_at_once(self) -> bool:
        """Whether there is a high watermark that the follower waits for (KIP-1166), and wasn't told."""
        partition = self.partition
        return (
            partition is not None
            and self.asked.high_watermark != NOT_TOLD
            and partition.high_watermark > max(self.known_high_watermark, self.told_high_watermark)
        )

    def tell(self, data: PartitionData) -> None:
        """This is answered. What happened since it was looked at is on the session's list again."""
        self.told_problem = problem_of(data)
        if self.told_problem is not None:  # it is told again with each answer, until that is over
            self.session.list_quiet(self)
        if data.error_code:
            return
        self.told_high_watermark = self.known_high_watermark = data.high_watermark
        self.told_start = data.log_start_offset
        if data.records and not self.sent:
            self.sent = True
            self.session.sent[self] = self.session.requests

    # -- what its partition tells

    def grew(self) -> None:
        if self.at_end:
            self.at_end = False
            assert self.partition is not None
            self.partition.was_caught_up(self.session.replica_id, self.session.fetched_ms)
        if not self.sent:
            self.session.list_ready(self)

    def moved(self) -> None:
        if self.hears_at_once:
            self.session.list_ready(self)
        else:
            self.session.list_quiet(self)

    def turned(self) -> None:
        """What the follower said of itself is taken in again, where it may be, though it doesn't say so again."""
        self.fresh = True
        self.session.list_ready(self)


class ReplicaSession:
    """What one follower copies from here. `id` 0: it is one request's only."""

    __slots__ = (
        "broker_epoch",
        "by_id",
        "epoch",
        "fetched_ms",
        "id",
        "partitions",
        "quiet",
        "ready",
        "replica_id",
        "requests",
        "sent",
        "waiting",
    )

    def __init__(self, session_id: int, replica_id: int, broker_epoch: int, *, by_id: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.by_id = by_id
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        """When its last request came."""
        self.partitions: dict[AnyTopicPartition, Followed] = {}
        self.ready: dict[Followed, None] = {}
        """Those that are worth an answer, in the order in which they came to be."""
        self.quiet: dict[Followed, None] = {}
        """Those that have something to say with the next answer."""
        self.sent: dict[Followed, int] = {}
        """Those that records were sent of, and the follower hasn't named since: with which request they were."""
        self.requests = 1
        self.waiting: Waiting | None = None

    def went_on(self, now_ms: int) -> None:
        """Another request of it came. Records that the follower made nothing of are sent again."""
        self.fetched_ms = now_ms
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        self.requests += 1
        while self.sent:
            followed = next(iter(self.sent))
            if self.requests - self.sent[followed] <= SENT_AGAIN_AFTER:
                break
            del self.sent[followed]
            followed.sent = False
            self.keep_ready(followed)

    def name(self, key: AnyTopicPartition, asked: FetchPartition) -> None:
        followed = self.partitions.get(key)
        if followed is None:
            followed = self.partitions[key] = Followed(self, key, asked)
        else:
            followed.name(asked)
            self.sent.pop(followed, None)
        self.quiet.pop(followed, None)
        self.ready[followed] = None

    def forget(self, key: AnyTopicPartition) -> None:
        followed = self.partitions.pop(key, None)
        if followed is not None:
            followed.leave()
            self.unlist(followed)
            self.sent.pop(followed, None)

    def list_ready(self, followed: Followed) -> None:
        if followed not in self.ready:
            self.quiet.pop(followed, None)
            self.ready[followed] = None
            if self.waiting is not None:
                self.waiting.wake()

    def keep_ready(self, followed: Followed) -> None:
        """It was looked at, and has its turn with the next look."""
        self.quiet.pop(followed, None)
        self.ready[followed] = None

    def list_quiet(self, followed: Followed) -> None:
        if followed not in self.ready:
            self.quiet[followed] = None

    def unlist(self, followed: Followed) -> None:
        self.ready.pop(followed, None)
        self.quiet.pop(followed, None)

    def drop(self) -> Steps[None]:
        """Nobody tells it anything any more."""
        while self.partitions:
            for _ in range(min(DROPPED_A_STEP, len(self.partitions))):
                _, followed = self.partitions.popitem()
                followed.leave()
                self.unlist(followed)
            yield


class ReplicaSessions:
    """All of them, the least recently used first."""

    def __init__(self, env: Environment, image: Callable[[], ClusterImage]) -> None:
        self._env = env
        self._image = image
        self._sessions: dict[int, ReplicaSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, request: FetchRequest, version: int, replica: ReplicaState) -> ReplicaSession:
        """The session of a request, one of its own where it has none. Raises the session's error.

        Followers that don't tell their broker's epoch (Kafka's, below metadata.version 3.5-IV1) have the one that is
        registered: with the next registration their session is over, so that they name everything anew.
        """
        now_ms = int(self._env.clock.monotonic() * 1000)
        by_id = version >= IDS_FROM
        broker_epoch = replica.replica_epoch
        if broker_epoch < 0 and (broker := self._image().brokers.get(replica.replica_id)) is not None:
            broker_epoch = broker.epoch
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            before = self._sessions.get(request.session_id)
            if before is not None and before.replica_id == replica.replica_id:
                self._drop(before)
            wanted = sum(len(topic.partitions) for topic in request.topics)
            keeps = request.session_epoch == INITIAL_EPOCH and self._has_room(replica.replica_id, broker_epoch, wanted)
            session_id = self._draw_id() if keeps else 0
            session = ReplicaSession(session_id, replica.replica_id, broker_epoch, by_id=by_id, now_ms=now_ms)
            if keeps:
                self._sessions[session.id] = session
            return session
        session = self._sessions.get(request.session_id)
        if session is None or session.replica_id != replica.replica_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.broker_epoch != broker_epoch:
            self._drop(session)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        wanted = sum(len(topic.partitions) for topic in request.topics)
        if len(session.partitions) + wanted > SESSION_PARTITIONS_MAX:
            self._drop(session)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.waiting is not None:
            session.waiting.supersede()
        session.went_on(now_ms)
        self._sessions[session.id] = self._sessions.pop(session.id)
        return session

    def expire(self) -> None:
        """The broker stops: whoever waits is answered now."""
        for session in list(self._sessions.values()):
            if session.waiting is not None:
                session.waiting.expire()

    def _has_room(self, replica_id: int, broker_epoch: int, wanted: int) -> bool:
        """Whether another one of this broker may be kept: its oldest go for it, and only brokers have any."""
        if replica_id not in self._image().brokers or wanted > SESSION_PARTITIONS_MAX:
            return False
        own = [session for session in self._sessions.values() if session.replica_id == replica_id]
        for number, session in enumerate(own):
            if session.broker_epoch < broker_epoch or number <= len(own) - REPLICA_SESSIONS_MAX:
                self._drop(session)
        kept = sum(len(session.partitions) for session in self._sessions.values())
        return kept + wanted <= SESSIONS_PARTITIONS_MAX

    def _draw_id(self) -> int:
        while True:
            session_id = self._env.random.random_int(1, SESSION_ID_MAX)
            if session_id not in self._sessions:
                return session_id

    def _drop(self, session: ReplicaSession) -> None:
        del self._sessions[session.id]
        if session.waiting is not None:
            session.waiting.supersede()
        self._env.loop.spread(session.drop())
