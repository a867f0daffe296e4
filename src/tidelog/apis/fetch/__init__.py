"""Fetch (key 1): read records, up to the high watermark, waiting for data where there is none.

The first batch is returned even above the bounds; an offset inside a batch returns that batch. A fetch that finds less
than min_bytes is parked until more comes, max_wait_ms are over, or a reason arises why nothing will come.

v4 adds isolation levels; v5 the log's start; v7 sessions (KIP-227); v9 fencing by leader epoch; v11 the rack; v12 is
flexible and tells of diverging epochs; v13 names topics by id; v15 moves the replica's id into a tagged field; v16
hints at the new leader (KIP-951); v17 and v18 add what followers say of themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tidelog.apis.bounds import MAX_WAIT_MS
from tidelog.apis.fetch.framing import frame, frame_steps, topic_response
from tidelog.apis.fetch.nearest import LEADER, nearest_replica
from tidelog.apis.fetch.parked import FEW, Parked
from tidelog.apis.fetch.reading import Reading
from tidelog.apis.fetch.replica_fetch import fetch_as_replica
from tidelog.apis.fetch.sessions import IDS_FROM, Session
from tidelog.apis.listeners import ListenerKind, kind_of
from tidelog.apis.shared.leader_hint import node_endpoints
from tidelog.config.cluster import RACK_AWARE
from tidelog.env.slices import Steps, whole
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from tidelog.wire.release import release, release_list
from tidelog.wire.topic_partition import AnyTopicPartition

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.replica.partition import Partition

RACKS_FROM = 11
REPLICA_STATE_FROM = 15

LOOKS_A_STEP = 32
FORGOTTEN_A_STEP = 256


def handle(context: Context, request: FetchRequest) -> Any:
    """The answer as pieces to send, or a parked fetch; of the metadata log, a promise of the response."""
    services = context.services
    if kind_of(context.listener, services.config) is ListenerKind.CONTROLLER:  # records of topics are not had there
        return services.raft.server.fetches.fetch(request, context.version)
    state = request.replica_state
    if context.version < REPLICA_STATE_FROM:
        state = ReplicaState(replica_id=request.replica_id)
    if state.replica_id >= 0:
        return fetch_as_replica(context, request, state)
    try:
        session = services.fetch_sessions.resume(request, context.version)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    fetch = _Fetch(context, request, session)
    wait_s = min(request.max_wait_ms, MAX_WAIT_MS) / 1000
    if fetch.count > FEW:
        return Parked(services.env.loop, fetch, wait_s, looked=False)
    whole(fetch.prepare())
    answer = whole(fetch.steps(at_once=wait_s <= 0))
    return Parked(services.env.loop, fetch, wait_s, looked=True) if answer is None else answer


def _nearest(context: Context, rack: str) -> Callable[[Partition, int], int]:
    """Which replica a consumer in this rack had better read from: the one that is asked, where none is looked for."""
    services = context.services
    if services.config.replica_selector_class != RACK_AWARE:
        return lambda partition, offset: LEADER
    image, listener = services.metadata.image, context.listener
    return lambda partition, offset: nearest_replica(partition, offset, rack, image, listener)


class _Fetch:
    """One fetch request: what it asks for, and how it is answered."""

    def __init__(self, context: Context, request: FetchRequest, session: Session | None) -> None:
        self._context = context
        self._session = session
        self._names = None if session is None else session.names
        self._epoch = 0 if session is None else session.epoch
        version = context.version
        self._nearest = _nearest(context, request.rack_id) if version >= RACKS_FROM and request.rack_id else None
        self._isolation = request.isolation_level
        self._max_bytes = min(request.max_bytes, context.services.config.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self._max_bytes)
        self._request = request
        self._asked: dict[AnyTopicPartition, FetchPartition] = {}
        if session is None:
            self.count = sum(len(topic.partitions) for topic in request.topics)
        else:
            self.count = len(session.partitions)
        self.available_bytes: dict[Partition, int] = {}
        # A full answer opens the session: it tells of every partition.
        self._tells_all = session is None or request.session_epoch == 0
        self._waits_at: dict[Partition, AnyTopicPartition] | None = None
        self._missing: int | None = None

    def prepare(self) -> Steps[None]:
        if self._session is not None:
            self._asked = dict(self._session.partitions)
            return
        by_id = self._context.version >= IDS_FROM
        for topic in self._request.topics:
            name = topic.topic_id if by_id else topic.topic
            for number, partition in enumerate(topic.partitions, 1):
                self._asked[name, partition.partition] = partition  # one that is named twice counts as it is named last
                if not number % FEW:
                    yield
        if self.count > FEW:
            yield from release(self._request)

    def steps(self, *, at_once: bool) -> Steps[list[Any] | None]:
        context = self._context
        reading = self._reading(self._max_bytes)
        last_answers = {} if self._session is None or self._tells_all else self._session.last_answers
        answered: list[tuple[AnyTopicPartition, PartitionData]] = []
        available_bytes: dict[Partition, int] = {}
        for number, (key, asked) in enumerate(self._asked.items(), 1):
            if key not in last_answers or not reading.is_quiet(key, asked, last_answers[key]):
                before = reading.bytes
                answered.append((key, reading.read(key, asked)))
                if reading.bytes > before and (partition := context.services.replicas.opened(key)) is not None:
                    available_bytes[partition] = reading.bytes - before
            if not number % LOOKS_A_STEP:
                yield
        self.available_bytes = available_bytes
        more_missing = self._missing is not None and reading.missing > self._missing
        if (
            at_once
            or reading.urgent
            or reading.bytes >= self.min_bytes
            or reading.missing == len(self._asked)
            or more_missing
        ):
            return (yield from self._answer(answered))
        self._missing = reading.missing
        yield from _let_go(answered)
        return None

    def partitions(self) -> Iterable[Partition | None]:
        if self._waits_at is None:
            self._waits_at = {}
            reading, replicas = self._reading(0), self._context.services.replicas
            for key in self._asked:
                try:
                    partition = replicas.opened(key) or reading.find(key)
                except KafkaError:  # one of those that nobody knows
                    yield None
                    continue
                self._waits_at[partition] = key
                yield partition
        else:
            yield from list(self._waits_at)

    def forget(self) -> Steps[None]:
        while self._asked:
            for _ in range(min(FORGOTTEN_A_STEP, len(self._asked))):
                self._asked.popitem()
            yield

    def bytes_at(self, partition: Partition) -> int | None:
        assert self._waits_at is not None
        key = self._waits_at[partition]
        reading = self._reading(self._max_bytes)
        reading.read(key, self._asked[key])
        return None if reading.urgent or reading.missing else reading.bytes

    def failure(self) -> list[Any]:
        response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        return frame(self._context.version, self._context.correlation_id, response)

    def _reading(self, max_bytes: int) -> Reading:
        context = self._context
        return Reading(
            context.services.replicas, context.version, self._isolation, max_bytes, self._names, self._nearest
        )

    def _went_on(self, session: Session) -> FetchResponse:
        """The client went on, over another connection, while this fetch was parked."""
        return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id)

    def _answer(self, answered: list[tuple[AnyTopicPartition, PartitionData]]) -> Steps[list[Any]]:
        context, session = self._context, self._session
        if session is not None and session.epoch != self._epoch:
            yield from _let_go(answered)
            return frame(context.version, context.correlation_id, self._went_on(session))
        topics: list[FetchableTopicResponse] = []
        last: str | bytes | None = None
        hints = False
        for number, (key, data) in enumerate(answered, 1):
            if session is None or session.news(key, data, first=self._tells_all):
                if key[0] != last:
                    last = key[0]
                    topics.append(topic_response(last))
                topics[-1].partitions.append(data)
                hints = hints or data.current_leader.leader_id >= 0
            if not number % FEW:
                yield
        if session is not None and session.epoch != self._epoch:  # it went on between two steps
            session.last_answers.clear()
            return frame(context.version, context.correlation_id, self._went_on(session))
        response = FetchResponse(session_id=session.id if session is not None else 0, responses=topics)
        if hints:
            response.node_endpoints = node_endpoints(NodeEndpoint, context)
        if len(answered) <= FEW:
            return frame(context.version, context.correlation_id, response)
        yield from _let_go(answered)
        return (yield from frame_steps(context.version, context.correlation_id, response))


def _let_go(answered: list[tuple[AnyTopicPartition, PartitionData]]) -> Steps[None]:
    """To free them all at once takes long, where they are many."""
    if len(answered) > FEW:
        yield from release_list(answered, nested=False)
