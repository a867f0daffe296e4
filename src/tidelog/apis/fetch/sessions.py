"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer fetches, requests name what changed.

A full fetch (epoch 0) opens a session, -1 asks for none, any other epoch goes on with one. An answer in a session names
only partitions that have something to say: data, an error, a moved high watermark or log start. Partitions that had
data go to the end of the session's order, so that a busy one can't starve the others (not so with the first answer,
as in Kafka). Sessions are bounded by
`max.incremental.fetch.session.cache.slots`; one idle for `min.incremental.fetch.session.eviction.ms` makes room.

Memory is bounded too, by the partitions that sessions name, whether there are such or not. A request for very many goes
without a session, and where all sessions together would have too many, the largest makes room for one that is smaller:
whoever names much can't keep others from having a session. A client whose session went opens another.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from tidelog.apis.bounds import SESSION_PARTITIONS_MAX, SESSIONS_PARTITIONS_MAX
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest
from tidelog.wire.messages.fetch import PartitionData as Answered
from tidelog.wire.topic_partition import AnyTopicPartition

if TYPE_CHECKING:
    from tidelog.env import Environment

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
IDS_FROM = 13


class Session:
    """What one consumer fetches, and what it was last told."""

    __slots__ = ("by_id", "epoch", "id", "last_answers", "last_used_ms", "names", "partitions")

    def __init__(self, session_id: int, *, by_id: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.by_id = by_id
        self.last_used_ms = now_ms
        self.partitions: dict[AnyTopicPartition, FetchPartition] = {}
        self.names: dict[bytes, str] = {}  # of the topics that were found by their ids
        self.last_answers: dict[AnyTopicPartition, tuple[int, int]] = {}  # high watermark and log start

    def add(self, request: FetchRequest) -> None:
        """What it names is fetched from now on."""
        for topic in request.topics:
            name = topic.topic_id if self.by_id else topic.topic
            for partition in topic.partitions:
                self.partitions[name, partition.partition] = partition

    def forget(self, request: FetchRequest) -> None:
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if self.by_id else topic.topic
            for index in topic.partitions:
                self.partitions.pop((name, index), None)
                self.last_answers.pop((name, index), None)

    def news(self, key: AnyTopicPartition, answered: Answered, *, first: bool) -> bool:
        """Whether the client has to be told of this answer; remembers that it was. `first`: it opens the session."""
        state = (answered.high_watermark, answered.log_start_offset)
        changed = self.last_answers.get(key) != state
        # After an error the client is told the partition's state again, once the error has gone.
        self.last_answers[key] = (-1, state[1]) if answered.error_code else state
        has_data = bool(answered.records)
        if has_data and not first and key in self.partitions:
            self.partitions[key] = self.partitions.pop(key)
        told = answered.error_code or answered.diverging_epoch.epoch >= 0 or answered.preferred_read_replica >= 0
        return first or has_data or changed or bool(told)


class FetchSessions:
    """All sessions, the least recently used first."""

    def __init__(self, env: Environment, *, slots: int, eviction_ms: int) -> None:
        self._env = env
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, request: FetchRequest, version: int) -> Session | None:
        """The session of a request; None where it goes without. Raises the session's error."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                self._drop(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return None
            return self._open(request, version)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != (version >= IDS_FROM):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._partitions -= len(session.partitions)
        session.add(request)
        session.forget(request)
        self._partitions += len(session.partitions)
        grown = len(session.partitions)
        if grown > SESSION_PARTITIONS_MAX or not self._make_room(0, for_one_of=grown, but=session.id):
            self._drop(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._drop(session.id)
            return None
        session.last_used_ms = self._env.clock.now_ms()
        self._sessions.move_to_end(session.id)
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        return session

    def _open(self, request: FetchRequest, version: int) -> Session | None:
        now_ms = self._env.clock.now_ms()
        wanted = sum(len(topic.partitions) for topic in request.topics)
        if wanted > SESSION_PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms <= self._eviction_ms:
                return None
            self._drop(oldest.id)
        if not self._make_room(wanted, for_one_of=wanted):
            return None
        while True:
            session_id = self._env.random.random_int(1, SESSION_ID_MAX)
            if session_id not in self._sessions:
                break
        session = Session(session_id, by_id=version >= IDS_FROM, now_ms=now_ms)
        session.add(request)
        self._partitions += len(session.partitions)
        self._sessions[session_id] = session
        return session

    def _make_room(self, wanted: int, *, for_one_of: int, but: int = 0) -> bool:
        """Whether so many more partitions may be remembered, after sessions larger than this one have gone."""
        while self._partitions + wanted > SESSIONS_PARTITIONS_MAX:
            largest = max(self._sessions.values(), key=lambda session: len(session.partitions))
            if len(largest.partitions) <= for_one_of or largest.id == but:
                return False
            self._drop(largest.id)
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)
