"""Fetch (key 1): read records, up to the high watermark, waiting for data where there is none.

The first batch is returned even above the bounds; an offset inside a batch returns that batch. A fetch that finds less
than min_bytes is parked until more comes, max_wait_ms are over, or a reason arises why nothing will come.

v4 adds isolation levels; v5 the log's start; v7 sessions (KIP-227); v9 fencing by leader epoch; v11 the rack; v12 is
flexible and tells of diverging epochs; v13 names topics by id; v15 moves the replica's id into a tagged field; v16
hints at the new leader (KIP-951); v17 and v18 add what followers say of themselves.
"""

from __future__ import annotations

import logging
from itertools import groupby
from struct import Struct
from typing import TYPE_CHECKING, Any

from tidelog.apis.fetch.reading import Reading
from tidelog.apis.fetch.sessions import IDS_FROM, Key, Session
from tidelog.apis.leader_hint import node_endpoints
from tidelog.wire.codec import pieces
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.replica.partition import Partition

log = logging.getLogger("tidelog.fetch")

FLEXIBLE_FROM = 12
REPLICA_STATE_FROM = 15
MAX_WAIT_MS = 60_000
"""A fetch is answered after this long whatever it asked for: a client that left unnoticed holds nothing for ever."""

_frame_plain = Struct(">ii").pack
_frame_flexible = Struct(">iib").pack


def handle(context: Context, request: FetchRequest) -> Any:
    """The answer as pieces to send, or a parked fetch."""
    try:
        session = context.services.fetch_sessions.resume(request, context.version)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    fetch = _Fetch(context, request, session)
    answer = fetch.look(at_once=request.max_wait_ms <= 0)
    return fetch if answer is None else answer


class _Fetch:
    """One fetch request. Parked, it is a waiter of each of its partitions."""

    def __init__(self, context: Context, request: FetchRequest, session: Session | None) -> None:
        self._context = context
        self._session = session
        self._names = None if session is None else session.names
        self._epoch = 0 if session is None else session.epoch
        version = context.version
        self._replica_id = request.replica_state.replica_id if version >= REPLICA_STATE_FROM else request.replica_id
        self._isolation = request.isolation_level
        self._max_bytes = min(request.max_bytes, context.services.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._max_wait_s = min(request.max_wait_ms, MAX_WAIT_MS) / 1000
        self._asked: list[tuple[Key, FetchPartition]]
        if session is not None:
            self._asked = list(session.partitions.items())
        else:
            by_id = version >= IDS_FROM
            asked = {  # one that is named twice counts once, as it is named last
                (topic.topic_id if by_id else topic.topic, partition.partition): partition
                for topic in request.topics
                for partition in topic.partitions
            }
            self._asked = list(asked.items())
        # A full answer opens the session: it tells of every partition.
        self._tells_all = session is None or request.session_epoch == 0
        self._parked: list[Partition] = []
        self._missing = 0
        self._slot: Any = None
        self._timer: Any = None
        self.done = False
        self.runs_ahead = False

    def look(self, *, at_once: bool) -> list[Any] | None:
        """The answer, or None where it is worth waiting."""
        context = self._context
        reading = Reading(
            context.services.replicas, context.version, self._replica_id, self._isolation, self._max_bytes, self._names
        )
        told = {} if self._session is None or self._tells_all else self._session.told
        answered = [
            (key, reading.read(key, asked))
            for key, asked in self._asked
            if key not in told or not reading.is_quiet(key, asked, told[key])
        ]
        if (
            at_once
            or reading.urgent
            or reading.bytes >= self._min_bytes
            or reading.missing == len(self._asked)
            or (self._slot is not None and reading.missing > self._missing)
        ):
            return self._answer(answered)
        self._missing = reading.missing
        return None

    def _answer(self, answered: list[tuple[Key, PartitionData]]) -> list[Any]:
        context, session = self._context, self._session
        if session is not None and session.epoch != self._epoch:
            # The client went on, over another connection, while this fetch was parked.
            response = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id)
            return frame(context.version, context.correlation_id, response)
        if session is not None:
            news = [(key, data) for key, data in answered if session.news(key, data, first=self._tells_all)]
        else:
            news = answered
        response = FetchResponse(
            session_id=session.id if session is not None else 0,
            responses=[
                _topic(topic, [data for _, data in group])
                for topic, group in groupby(news, key=lambda item: item[0][0])
            ],
        )
        if any(data.current_leader.leader_id >= 0 for _, data in news):
            response.node_endpoints = node_endpoints(NodeEndpoint, context)
        return frame(context.version, context.correlation_id, response)

    # -- parked

    def begin(self, slot: Any) -> None:
        self._slot = slot
        replicas = self._context.services.replicas
        reading = Reading(replicas, self._context.version, -1, self._isolation, 0, self._names)
        for key, _ in self._asked:
            try:
                partition = replicas.opened(key) or reading.find(key)
            except KafkaError:  # one of those that nobody knows
                continue
            partition.park(self)
            self._parked.append(partition)
        self._timer = self._context.services.env.loop.call_later(self._max_wait_s, self.expire)

    def wake(self) -> None:
        if not self.done:
            self._look_again(at_once=False)

    def expire(self) -> None:
        if not self.done:
            self._look_again(at_once=True)

    def _look_again(self, *, at_once: bool) -> None:
        try:
            answer = self.look(at_once=at_once)
        except Exception:  # a bug of ours: those parked beside this one are woken all the same
            log.exception("a parked fetch can't be answered")
            response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            answer = frame(self._context.version, self._context.correlation_id, response)
        if answer is not None:
            self._complete(answer)

    def _complete(self, answer: list[Any]) -> None:
        slot = self._slot
        self._leave()
        slot.complete(answer)

    def abandon(self) -> None:
        """The connection has gone: wait for nothing any more."""
        if not self.done:
            self._leave()

    def _leave(self) -> None:
        """Let go of whoever holds it: thousands a second must not wait for the garbage collector."""
        self.done = True
        self._timer.cancel()
        self._timer = self._slot = None
        for partition in self._parked:
            partition.unpark(self)


def _topic(topic: str | bytes, partitions: list[PartitionData]) -> FetchableTopicResponse:
    if isinstance(topic, bytes):
        return FetchableTopicResponse(topic_id=topic, partitions=partitions)
    return FetchableTopicResponse(topic=topic, partitions=partitions)


def frame(version: int, correlation_id: int, response: FetchResponse) -> list[Any]:
    """The response as it is sent: its length and header, then bytes and slices of logs in turn."""
    parts = pieces(FetchResponse, version)(response)
    size = sum(map(len, parts))
    if version >= FLEXIBLE_FROM:
        head = _frame_flexible(size + 5, correlation_id, 0)
    else:
        head = _frame_plain(size + 4, correlation_id)
    return [head, *parts]
