"""A follower's fetch: what it says of itself is taken in, then it is answered from its session's list of news.

The offset that it asks for says how far it is, unless the epoch of its last batch says that its log parts from ours
earlier: then it is told where, and nothing is taken in (KIP-595). It reads to the end of the log, beyond the high
watermark. Where there is nothing to say the fetch waits on its session, and on no partition.

A partition whose log is being opened is told of when it is open; in a full answer, which has to tell of all, as one
that this broker doesn't lead yet. Errors are told with each answer while they last, and are a reason to answer once.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from tidelog.apis.bounds import MAX_WAIT_MS
from tidelog.apis.fetch.framing import frame, frame_steps, topic_response
from tidelog.apis.fetch.parked import FEW
from tidelog.apis.fetch.reading import refused
from tidelog.apis.fetch.replica_session import problem_of
from tidelog.apis.shared.leader_hint import node_endpoints
from tidelog.env.slices import Steps, whole
from tidelog.replica.replicas import NotOpenYet
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.apis.fetch.replica_session import Followed, ReplicaSession
    from tidelog.apis.shared.context import Context
    from tidelog.env.loop import Timer
    from tidelog.env.promise import Promise
    from tidelog.log.slice import Slice
    from tidelog.replica.partition import Partition
    from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, ReplicaState

log = logging.getLogger("tidelog.fetch")

NO_EPOCH = -1
LOOKS_A_STEP = 16
NAMED_A_STEP = 128


def fetch_as_replica(context: Context, request: FetchRequest, replica: ReplicaState) -> Any:
    """The answer as pieces to send, or a fetch that waits."""
    try:
        session = context.services.replica_sessions.resume(request, context.version, replica)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    fetch = ReplicaFetch(context, request, session)
    count = sum(len(topic.partitions) for topic in request.topics)
    return fetch.at_once() if count <= FEW and len(session.ready) <= FEW else fetch


class State(Enum):
    LOOKING = auto()
    WAITING = auto()
    DONE = auto()


class ReplicaFetch:
    """One request. It waits for its session to have news, or its time to be over."""

    __slots__ = (
        "_context",
        "_epoch",
        "_is_first",
        "_is_over",
        "_is_woken",
        "_limit",
        "_min_bytes",
        "_request",
        "_session",
        "_slot",
        "_state",
        "_timer",
        "_wait_s",
        "runs_ahead",
    )

    def __init__(self, context: Context, request: FetchRequest, session: ReplicaSession) -> None:
        self._context = context
        self._request: FetchRequest | None = request
        self._session = session
        self._epoch = session.epoch
        self._is_first = session.id == 0 or request.session_epoch <= 0
        """The answer tells of every partition."""
        self._limit = min(request.max_bytes, context.services.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._limit)
        self._wait_s = min(max(request.max_wait_ms, 0), MAX_WAIT_MS) / 1000
        self._is_over = self._wait_s <= 0 or request.min_bytes <= 0
        self._is_woken = False
        self._state = State.LOOKING
        self._slot: Any = None
        self._timer: Timer | None = None
        self.runs_ahead = False
        session.waiting = self

    def at_once(self) -> Any:
        """Its answer, or itself where it is to wait."""
        whole(self._take_in())
        answer = whole(self._look())
        if answer is None:
            self._state = State.WAITING
            return self
        self._end()
        return answer

    # -- waiting

    def begin(self, slot: Any) -> None:
        self._slot = slot
        loop = self._context.services.env.loop
        if not self._is_over:
            self._timer = loop.call_later(self._wait_s, self.expire)
        if self._state is State.LOOKING:
            loop.drive(self._all()).on_done(self._looked)

    def _all(self) -> Steps[list[Any] | None]:
        yield from self._take_in()
        return (yield from self._look())

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            if self._state is State.WAITING:
                self._context.services.env.loop.call_soon(self._look_again)

    def expire(self) -> None:
        self._is_over = True
        if self._state is State.WAITING:
            self._look_again()

    def supersede(self) -> None:
        """The follower went on, over another connection."""
        if self._state is State.WAITING:
            self._complete(self._stale())

    def abandon(self) -> None:
        if self._state is not State.DONE:
            self._end()

    def _look_again(self) -> None:
        if self._state is not State.WAITING:
            return
        self._state = State.LOOKING
        self._is_woken = False
        if len(self._session.ready) + len(self._session.quiet) <= FEW and not self._is_first:
            try:
                answer = whole(self._look())
            except Exception:
                log.exception("a follower's fetch can't be answered")
                answer = self._failure()
            self._go_on(answer)
        else:
            self._context.services.env.loop.drive(self._look()).on_done(self._looked)

    def _looked(self, looked: Promise[list[Any] | None]) -> None:
        if self._state is State.DONE:
            return
        if looked.error is not None:
            log.error("a follower's fetch can't be answered", exc_info=looked.error)
            self._go_on(self._failure())
        else:
            self._go_on(looked.result())

    def _go_on(self, answer: list[Any] | None) -> None:
        if answer is not None:
            self._complete(answer)
            return
        self._state = State.WAITING
        if self._is_woken or self._is_over:
            self._look_again()

    def _complete(self, answer: list[Any]) -> None:
        slot = self._slot
        self._end()
        slot.complete(answer)

    def _end(self) -> None:
        self._state = State.DONE
        self._slot = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        session = self._session
        if session.waiting is self:
            session.waiting = None
        if session.id == 0:
            self._context.services.env.loop.spread(session.drop())

    # -- what is asked

    def _take_in(self) -> Steps[None]:
        """Note what the request names and forgets, and how far the follower is with it."""
        request, session = self._request, self._session
        assert request is not None
        self._request = None
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if session.by_id else topic.topic
            for number, index in enumerate(topic.partitions, 1):
                session.forget((name, index))
                if not number % NAMED_A_STEP:
                    yield
        named: list[Followed] = []
        for topic in request.topics:
            name = topic.topic_id if session.by_id else topic.topic
            for number, asked in enumerate(topic.partitions, 1):
                session.name((name, asked.partition), asked)
                named.append(session.partitions[name, asked.partition])
                if not number % NAMED_A_STEP:
                    yield
        for number, followed in enumerate(named, 1):
            if self._epoch != session.epoch:
                return
            if followed.fresh:
                with suppress(KafkaError):  # it is told of when it is looked at
                    self._progress(followed)
            if not number % LOOKS_A_STEP:
                yield

    def _progress(self, followed: Followed) -> EpochEndOffset | None:
        """Take in how far the follower is; where the logs part, if they do. Raises what is to be told instead."""
        asked = followed.asked
        partition = self._find(followed)
        partition.check_leader(max(asked.current_leader_epoch, NO_EPOCH))
        if asked.last_fetched_epoch > NO_EPOCH and (parted := _parted(partition, asked)) is not None:
            return parted
        session = self._session
        partition.follower_fetched(
            session.replica_id,
            session.broker_epoch,
            asked.current_leader_epoch,
            asked.fetch_offset,
            asked.log_start_offset,
        )
        followed.fresh = False
        return None

    def _find(self, followed: Followed) -> Partition:
        partition = followed.partition
        if partition is not None and not partition.deleted:
            return partition
        topic, index = followed.key
        replicas = self._context.services.replicas
        partition = replicas.at((topic, index))
        followed.found(partition)
        return partition

    # -- what is answered

    def _look(self) -> Steps[list[Any] | None]:
        """The answer; None where it is worth waiting."""
        session = self._session
        if not self._is_over and not session.ready:
            return None
        reading = _Reading(self._context.version, self._limit, tells_all=self._is_first)
        looks = list(session.partitions.values()) if self._is_first else [*session.ready, *session.quiet]
        for number, followed in enumerate(looks, 1):
            if session.epoch != self._epoch or self._state is State.DONE:
                return self._stale()
            if session.partitions.get(followed.key) is followed:
                reading.read(followed, self._progress)
            if reading.is_full:
                break
            if not number % LOOKS_A_STEP:
                yield
        if not self._is_over and not reading.urgent and not 0 < self._min_bytes <= reading.bytes:
            reading.put_back()
            return None
        return (yield from self._answer(reading.found))

    def _answer(self, found: list[tuple[Followed, PartitionData]]) -> Steps[list[Any]]:
        context = self._context
        response = FetchResponse(session_id=self._session.id)
        topic: FetchableTopicResponse | None = None
        last: str | bytes | None = None
        hints = False
        for number, (followed, data) in enumerate(found, 1):
            followed.tell(data)
            if topic is None or followed.key[0] != last:
                last = followed.key[0]
                topic = topic_response(last)
                response.responses.append(topic)
            topic.partitions.append(data)
            hints = hints or data.current_leader.leader_id >= 0
            if not number % NAMED_A_STEP:
                yield
        if hints:
            response.node_endpoints = node_endpoints(NodeEndpoint, context)
        if len(found) <= FEW:
            return frame(context.version, context.correlation_id, response)
        return (yield from frame_steps(context.version, context.correlation_id, response))

    def _stale(self) -> list[Any]:
        response = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=self._session.id)
        return frame(self._context.version, self._context.correlation_id, response)

    def _failure(self) -> list[Any]:
        response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        return frame(self._context.version, self._context.correlation_id, response)


class _Reading:
    """One look at the partitions that may have something to say."""

    __slots__ = ("_budget", "_tells_all", "_version", "bytes", "found", "is_full", "urgent")

    def __init__(self, version: int, limit: int, *, tells_all: bool) -> None:
        self._version = version
        self._budget = limit
        self._tells_all = tells_all
        self.found: list[tuple[Followed, PartitionData]] = []
        self.bytes = 0
        self.urgent = False
        self.is_full = False
        """No more records go into the answer; what else is listed has its turn with the next."""

    def read(self, followed: Followed, progress: Callable[[Followed], EpochEndOffset | None]) -> None:
        """What is to be told of one of them, if anything is."""
        followed.session.unlist(followed)
        try:
            data = self._read(followed, progress)
        except NotOpenYet as not_yet:
            not_yet.opened.on_done(lambda _: followed.turned())
            if not self._tells_all:
                return
            data = refused(followed.asked, ErrorCode.UNKNOWN_LEADER_EPOCH, followed.partition, self._version)
        except KafkaError as error:
            data = refused(followed.asked, error.code, followed.partition, self._version)
        except Exception:
            log.exception("reading partition %s-%s failed for broker %d", *followed.key, followed.session.replica_id)
            data = refused(followed.asked, ErrorCode.UNKNOWN_SERVER_ERROR, followed.partition, self._version)
        if data is None:
            return
        problem = problem_of(data)
        if problem is not None and problem != followed.told_problem:
            self.urgent = True
        self.found.append((followed, data))

    def _read(self, followed: Followed, progress: Callable[[Followed], EpochEndOffset | None]) -> PartitionData | None:
        asked, partition = followed.asked, followed.partition
        parted = None
        if followed.fresh or partition is None or partition.deleted:
            parted = progress(followed)
            partition = followed.partition
            assert partition is not None
        else:
            partition.check_leader(max(asked.current_leader_epoch, NO_EPOCH))
            if followed.session.replica_id not in partition.image.replicas:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ends = partition.log.ends
        records = None
        if parted is None and not followed.sent:
            followed.at_end = asked.fetch_offset == ends.log_end
            if not followed.at_end:
                records = self._records(followed, partition)
        high_watermark, start = partition.high_watermark, ends.log_start
        if followed.hears_at_once:
            self.urgent = True
        elif not (
            self._tells_all
            or parted is not None
            or records is not None
            or high_watermark != followed.known_high_watermark
            or start != followed.told_start
        ):
            return None
        answered = PartitionData(
            partition_index=asked.partition,
            high_watermark=high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=start,
            aborted_transactions=None,
            records=b"" if records is None else records,
        )
        if parted is not None:
            answered.diverging_epoch = parted
        return answered

    def _records(self, followed: Followed, partition: Partition) -> Slice | None:
        asked = followed.asked
        limit = min(asked.partition_max_bytes, self._budget)
        records = None
        if limit > 0 or not self.bytes:
            records = partition.read_to_end(asked.fetch_offset, limit, at_least_one=not self.bytes)
        if records is None:
            followed.session.keep_ready(followed)  # it doesn't fit
        else:
            size = len(records)
            self.bytes += size
            self._budget = max(0, self._budget - size)
        self.is_full = not self._tells_all and self._budget <= 0
        return records

    def put_back(self) -> None:
        """What was found isn't told now."""
        for followed, data in self.found:
            if data.records:
                followed.session.keep_ready(followed)
            else:
                followed.session.list_quiet(followed)


def _parted(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """Where the follower's log and ours part, if the epoch of its last batch says that they do."""
    epoch, end = partition.log.epochs.end_offset_for(asked.last_fetched_epoch, partition.log.log_end)
    if epoch < 0 or end < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end)
    return None
