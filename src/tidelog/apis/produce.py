"""Produce (key 0): append record batches.

acks=0 gets no answer at all (an error closes the connection, which is all that a client can notice), acks=1 is answered
after the write, acks=all when the high watermark has passed the batch. Errors are told for each partition.

v4 may answer KAFKA_STORAGE_ERROR; v5 adds the log's start; v7 allows zstd; v8 adds record errors (KIP-467); v9 is
flexible; v10 hints at the new leader (KIP-951); v11 and v12 belong to transactions (KIP-890); v13 names topics by id.
ApiVersions advertises it from 0, since an old librdkafka looks for that, though 3 is the lowest that works.

The usual request of librdkafka, one partition of one topic, has a path of its own: it reads the frame where it lies and
writes the answer with one Struct. Whatever it doesn't know goes through the compiled codec, which is its oracle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.apis.shared.leader_hint import hint_at_leader, node_endpoints
from tidelog.apis.shared.produce_frames import (
    FLEXIBLE_FROM,
    HEAD,
    NAME_AT,
    NAME_LENGTH_AT,
    TAGS_BEHIND,
    find_alike,
    keys_of,
    locate,
)
from tidelog.apis.shared.produce_parts import REFUSED_IN_WORDS, Outcome, in_parts, refusal_of, refused_in_parts
from tidelog.apis.shared.record_validation import IDS_FROM, Admissions, keep, look_ahead, served
from tidelog.apis.shared.staged import Staged, staged_after
from tidelog.controller.names import INTERNAL_TOPICS
from tidelog.env.promise import Promise, gather
from tidelog.env.slices import whole
from tidelog.log.producers import NotRemembered
from tidelog.log.record_check import Lengthy, RecordsRefused
from tidelog.wire.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_FLAG,
)
from tidelog.wire.codec import encoder
from tidelog.wire.compression import Codec
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context, Services
    from tidelog.apis.shared.txn_verification import Joined
    from tidelog.env.slices import Steps
    from tidelog.log.validate import Admitted
    from tidelog.replica.partition import Partition
    from tidelog.wire.topic_partition import AnyTopicPartition

log = logging.getLogger("tidelog.produce")

ADMIN_CLIENT_ID = "__admin_client"
HINTS_FROM = 10
ZSTD_FROM = 7
TARGETS_MAX = 20_000
BEGUN_AHEAD_MAX = 64
BEGUN_AHEAD_MIN = 32
"""New logs that are begun for requests which wait behind another: so many at a look, some milliseconds; and no look
while as many are being begun, which keeps the threads at it busy."""
PARTITIONS_AT_ONCE = 256
"""Batches of so many partitions are appended in one go: some milliseconds."""
NO_LOG_START = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)

_read_i32 = Struct(">i").unpack_from
_FRAME = Struct(">iiB")


Target: TypeAlias = "tuple[Partition, int, int, int, bytes, Callable[..., bytes], int]"
"""A partition, its index, acks, timeout, the constant part of an answer without error, its layout and its length."""


class ProducePath:
    """The fast path: what comes in this shape again and again is looked up by its bytes."""

    def __init__(self, services: Services) -> None:
        self._replicas = services.replicas
        self._store = services.store
        self._now_ms = services.env.clock.now_ms
        self._deadlines = services.deadlines
        self._targets: dict[bytes, Target] = {}
        services.replicas.forget.append(self._targets.clear)

    def handle_alike(self, buffer: memoryview, start: int, end: int, most: int) -> tuple[list[Any], int] | None:
        """The answers to the frames from `start` on that are for one partition, and where they end.

        A client that doesn't wait for each answer has several in one read: their batches are appended with one write.
        None: nothing was done, and each is for `handle_frame`.
        """
        try:
            alike = find_alike(buffer, start, end, most)
        except (StructError, IndexError):
            return None
        if alike is None:
            return None
        key, spans, correlation_ids = alike
        target = self._targets.get(key) or self._find(key)
        if target is None or not target[2]:
            return None
        partition, _, acks, timeout_ms, middle, pack, frame_bytes = target
        offsets = partition.append_together(buffer, spans, acks, self._now_ms())
        taken = len(offsets) - 1
        if not taken:
            return None
        answers: list[Any] = []
        waits = acks < 0 or partition.log.unreserved
        high_watermark, log_start = partition.high_watermark, partition.log.ends.log_start
        for correlation_id, base, next_offset in zip(correlation_ids, offsets, offsets[1:], strict=False):
            if waits and high_watermark < next_offset:
                answer = _LateAck(partition, next_offset, base, -1, target, correlation_id)
                self._deadlines.add(timeout_ms, answer)
                answers.append(answer)
            else:
                answers.append(pack(frame_bytes, correlation_id, middle, base, -1, log_start, TAIL))
        return answers, spans[taken - 1][1] + TAGS_BEHIND

    def handle_frame(self, buffer: memoryview, pos: int, end: int, version: int, correlation_id: int) -> Any:
        """The answer to a frame whose header ends at `pos` but for its tags; NotImplemented: take the general way."""
        if not FLEXIBLE_FROM <= version < IDS_FROM:
            return NotImplemented
        try:
            located = locate(buffer, pos, end)
        except (StructError, IndexError):
            return NotImplemented
        if located is None:
            return NotImplemented
        key, after, stop = located
        target = self._targets.get(key) or self._find(key)
        if target is None:
            return NotImplemented
        if stop - after < HEADER_BYTES or buffer[after + ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG:
            return NotImplemented
        partition, index, acks, timeout_ms, middle, pack, frame_bytes = target
        try:
            base, next_offset, time_ms = partition.append(buffer, after, stop, acks, self._now_ms())
        except Lengthy:
            return NotImplemented  # nor was it here: the general way has time
        except KafkaError as error:
            # Rare, and nothing was touched: the general way knows how to hint at the leader, and waits for the log.
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER or isinstance(error, NotRemembered):
                return NotImplemented
            if acks == 0:
                raise _unanswerable(partition.topic, index, error) from error
            response = PartitionProduceResponse(index=index, base_offset=-1)
            _refuse(response, error, partition, buffer[after:stop])
            topic = TopicProduceResponse(name=partition.topic, partition_responses=[response])
            body = encoder(ProduceResponse, version)(ProduceResponse(responses=[topic]))
            return _FRAME.pack(len(body) + 5, correlation_id, 0) + body
        if acks == 0:
            return None
        if partition.high_watermark < next_offset and (acks < 0 or partition.log.unreserved):
            answer = _LateAck(partition, next_offset, base, time_ms, target, correlation_id)
            self._deadlines.add(timeout_ms, answer)
            return answer
        return pack(frame_bytes, correlation_id, middle, base, time_ms, partition.log.ends.log_start, TAIL)

    def begin_ahead(self, buffer: memoryview, start: int, end: int) -> None:
        """Begin the new logs that the frames in [start, end) will write to, which wait behind one that waits for its.

        Else each would be a round trip to a thread of its own. Nothing is decided here but that a log gets its files:
        each frame is handled in its turn, and finds out then whether it may write. Up to the first of another shape.
        """
        if len(self._store.beginnings) >= BEGUN_AHEAD_MIN:
            return  # threads have enough to do: who waits next looks again
        for key in islice(keys_of(buffer, start, end), BEGUN_AHEAD_MAX):
            if key not in self._targets:
                partition = self._partition_of(key)
                if partition is not None:
                    partition.begin()

    def _partition_of(self, key: bytes) -> Partition | None:
        """Whose records a frame has, by what it has up to the batch. None: not for this path."""
        tags, transactional, acks, _, topics, name_bytes = HEAD.unpack_from(key)
        # A null transactional id is a 0. A name's length of two bytes would be above 127.
        if tags or transactional or topics != 2 or not 0 < name_bytes < 128 or not -1 <= acks <= 1:
            return None
        behind = NAME_LENGTH_AT + name_bytes
        if key[behind] != 2:  # one partition
            return None
        try:
            topic = key[NAME_AT:behind].decode()
            return None if topic in INTERNAL_TOPICS else self._replicas.get(topic, _read_i32(key, behind + 1)[0])
        except (KafkaError, UnicodeDecodeError):
            return None

    def _find(self, key: bytes) -> Target | None:
        """Resolve and remember: `key` is what a frame has up to the batch. None: not for this path."""
        partition = self._partition_of(key)
        if partition is None or partition.begin() is not None:  # its first write waits for its files
            return None
        index = partition.index
        _, _, acks, timeout_ms, _, _ = HEAD.unpack_from(key)
        # Header tags, one topic, its name, one partition, its index, no error.
        middle = b"\0\x02" + key[NAME_LENGTH_AT:] + b"\0\0"
        # Length, correlation id, what is always the same, base offset, append time, log start, what is always the same.
        layout = Struct(f">ii{len(middle)}sqqq{len(TAIL)}s")
        if len(self._targets) >= TARGETS_MAX:
            self._targets.clear()
        target = (partition, index, acks, timeout_ms, middle, layout.pack, layout.size - 4)
        self._targets[key] = target
        return target


# No record errors, no message, tags of the partition and of the topic, throttle time, tags.
TAIL = b"\1\0\0\0" + bytes(4) + b"\0"


class _LateAck:
    """The answer of the fast path that waits for the high watermark."""

    __slots__ = (
        "_base",
        "_correlation_id",
        "_next",
        "_partition",
        "_slot",
        "_target",
        "_time_ms",
        "done",
        "runs_ahead",
    )

    def __init__(
        self,
        partition: Partition,
        next_offset: int,
        base: int,
        time_ms: int,
        target: Target,
        correlation_id: int,
    ) -> None:
        self._partition = partition
        self._next = next_offset
        self._base = base
        self._time_ms = time_ms
        self._target = target
        self._correlation_id = correlation_id
        self._slot: Any = None
        self.done = False
        self.runs_ahead = True

    def begin(self, slot: Any) -> None:
        self._slot = slot
        self._partition.wait_for_ack(self._next, self._complete, self)

    def abandon(self) -> None:
        self.done = True

    def expire(self) -> None:
        if self._slot is None:  # it was never begun: its connection had gone
            self.done = True
        else:
            self._complete(ErrorCode.REQUEST_TIMED_OUT)

    def _complete(self, code: ErrorCode) -> None:
        if self.done:
            return
        self.done = True
        slot, self._slot = self._slot, None  # each would keep the other alive until the garbage collector comes
        partition, _, _, _, middle, pack, frame_bytes = self._target
        base, time_ms, log_start = self._base, self._time_ms, partition.log.ends.log_start
        if code:
            base = time_ms = log_start = -1
            middle = middle[:-2] + int(code).to_bytes(2)
        slot.complete(pack(frame_bytes, self._correlation_id, middle, base, time_ms, log_start, TAIL))


# -- the general way


def takes_long(request: ProduceRequest) -> bool:
    """Whether it is to be handled in steps, in a frame of its own."""
    return sum(len(topic.partition_data) for topic in request.topic_data) > PARTITIONS_AT_ONCE


def handle(context: Context, request: ProduceRequest) -> Outcome | Steps[ProduceResponse | None]:
    """Any request, in any version: append to each partition, wait for those that need it, answer all at once."""
    if takes_long(request):
        return _handle_long(context, request)
    refusal = whole(refusal_of(request))
    if refusal is not None:
        return _refuse_all(request, refusal)
    waits = _waits(context, request)
    if waits is not None:
        keep(request, {})
        return staged_after(waits, lambda _: _admit(context, request))
    return _admit(context, request)


def _handle_long(context: Context, request: ProduceRequest) -> Steps[ProduceResponse | None]:
    refusal = yield from refusal_of(request)
    if refusal is not None:
        return (yield from refused_in_parts(request, partial(_refuse_all, code=refusal)))
    return (yield from in_parts(request, partial(_waits, context), partial(_admit, context)))


def _waits(context: Context, request: ProduceRequest) -> Promise[None] | None:
    """What has to be done off the loop before anything is appended; None: nothing."""
    waiting: list[Promise[None]] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is None or len(data.records) < HEADER_BYTES:
                continue
            partition = served(context, topic, data.index)
            if partition is not None:
                records = memoryview(data.records)
                waits = partition.begin() or partition.remember(records, 0, len(records))
                if waits is not None:
                    waiting.append(waits)
    return gather(waiting).map(lambda _: None) if waiting else None


def _admit(context: Context, request: ProduceRequest) -> Outcome:
    admissions = look_ahead(context, request)
    if isinstance(admissions, Promise):
        return staged_after(admissions, lambda looked: _join(context, request, looked))
    return _join(context, request, admissions)


def _join(context: Context, request: ProduceRequest, admissions: Admissions) -> Outcome:
    if request.transactional_id is None:
        return _append_all(context, request, admissions, None)
    from tidelog.apis.shared.txn_verification import join  # here: most brokers never see a transaction

    try:
        joined = join(context, request)
    except KafkaError as error:
        return _refuse_all(request, error.code)
    if not isinstance(joined, Promise):
        return _append_all(context, request, admissions, joined)
    if not joined.done:
        keep(request, admissions)
    return staged_after(joined, lambda result: _append_all(context, request, admissions, result))


def _append_all(context: Context, request: ProduceRequest, admissions: Admissions, joined: Joined | None) -> Outcome:
    appends = _Appends(context, request, admissions, joined)
    if request.acks == 0:
        if appends.failed is not None:
            raise _unanswerable(*appends.failed)
        return None
    if not appends.waiting:
        return appends.answer()
    context.services.deadlines.add(request.timeout_ms, appends)
    return Staged(appends.promise)


def _holds_one_batch(records: memoryview) -> bool:
    """Whether there is one whole batch of magic 2, and at most a part of another behind it."""
    sizes: list[int] = []
    pos = 0
    while pos + MAGIC_AT < len(records) and records[pos + MAGIC_AT] == MAGIC and len(sizes) < 2:
        pos += LOG_OVERHEAD + int.from_bytes(records[pos + LENGTH_AT : pos + LENGTH_AT + 4], signed=True)
        if not LOG_OVERHEAD < pos <= len(records):
            break
        sizes.append(pos)
    return len(sizes) == 1


def _append(
    partition: Partition, records: memoryview, acks: int, now_ms: int, admission: Admitted | KafkaError | None
) -> tuple[int, int, int]:
    try:
        return partition.append(records, 0, len(records), acks, now_ms, admission)
    except Lengthy:
        partition.expect_again(records, 0, len(records), now_ms)
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,  # which every client tries again
            f"the settings of {partition.topic} changed while the batch was on its way: send it again",
        ) from None


def _check_internal(partition: Partition, records: memoryview) -> None:
    """What is in a topic of the broker's own is read by a coordinator, on the loop: nothing that inflates there."""
    if len(records) >= HEADER_BYTES and records[ATTRIBUTES_AT + 1] & CODEC_MASK:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"{partition.topic} is the broker's own: it takes nothing compressed"
        )


def _refuse(response: PartitionProduceResponse, error: KafkaError, partition: Partition, records: memoryview) -> None:
    """Say so in the answer. The log's start is told where the log was asked, and the error isn't one of reaching it."""
    response.error_code = error.code
    response.error_message = error.message
    if isinstance(error, RecordsRefused):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.refused
        ]
    if error.code not in NO_LOG_START and _holds_one_batch(records):
        response.log_start_offset = partition.log.log_start


def _unanswerable(topic: str, index: int, error: Exception) -> MalformedError:
    return MalformedError(f"produce with acks=0 to {topic}-{index}: {error}; closing is all that such a client notices")


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    if not request.acks:
        raise MalformedError(f"produce with acks=0: {code.name}; closing is all that such a client notices")
    return ProduceResponse(responses=[_refused(topic, code) for topic in request.topic_data])


def _refused(topic: TopicProduceData, code: ErrorCode) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            PartitionProduceResponse(
                index=partition.index, error_code=code, base_offset=-1, error_message=REFUSED_IN_WORDS.get(code)
            )
            for partition in topic.partition_data
        ],
    )


class _Appends:
    """The appends of one request, and the answer once the last of them is acknowledged."""

    def __init__(
        self, context: Context, request: ProduceRequest, admissions: Admissions, joined: Joined | None
    ) -> None:
        self._context = context
        self._admissions = admissions
        self._acks = request.acks
        self._joined = joined
        self.failed: tuple[str, int, Exception] | None = None
        self.waiting = 0
        self.done = False
        self.promise: Promise[ProduceResponse | None] = Promise()
        self._pending: list[tuple[Partition, int, PartitionProduceResponse]] = []
        self._response = ProduceResponse(responses=[self._topic(topic) for topic in request.topic_data])
        self._wait()

    def _topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        return TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[self._partition(topic, partition) for partition in topic.partition_data],
        )

    def _partition(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=data.index, base_offset=-1)
        try:
            self._append(topic, data, response)
        except KafkaError as error:
            response.error_code = error.code
            response.error_message = error.message
            self.failed = (topic.name or topic.topic_id.hex(), data.index, error)
        except Exception as error:
            log.exception("append to %s-%d failed", topic.name or topic.topic_id.hex(), data.index)
            response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            self.failed = (topic.name or topic.topic_id.hex(), data.index, error)
        return response

    def _append(self, topic: TopicProduceData, data: PartitionProduceData, response: PartitionProduceResponse) -> None:
        context = self._context
        partition = self._find(topic, data)
        if self._joined is not None:
            self._check_member(topic, data, partition)
        if partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is the broker's own topic")
        records = data.records
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no records were sent for this partition")
        view = memoryview(records)
        if partition.topic in INTERNAL_TOPICS:
            _check_internal(partition, view)
        if view.readonly:
            view = memoryview(bytearray(view))
        if (
            context.version < ZSTD_FROM
            and _holds_one_batch(view)
            and view[ATTRIBUTES_AT + 1] & CODEC_MASK == Codec.ZSTD
        ):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{context.version} has no zstd: v{ZSTD_FROM} has"
            )
        try:
            now_ms = context.services.env.clock.now_ms()
            if self._joined is not None:
                self._check_guard(self._joined, self._place(topic, data), partition, view, now_ms)
                self._joined.check_order(partition, view)
            admission = self._admissions.get(id(data))
            base, next_offset, time_ms = _append(partition, view, self._acks, now_ms, admission)
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and context.version >= HINTS_FROM:
                response.current_leader = hint_at_leader(LeaderIdAndEpoch, partition)
            _refuse(response, error, partition, view)
            raise
        response.base_offset = base
        response.log_append_time_ms = time_ms
        response.log_start_offset = partition.log.log_start
        if partition.high_watermark < next_offset and (self._acks < 0 or partition.log.unreserved):
            self._pending.append((partition, next_offset, response))

    def _find(self, topic: TopicProduceData, data: PartitionProduceData) -> Partition:
        replicas, place = self._context.services.replicas, self._place(topic, data)
        try:
            return replicas.at(place)
        except KafkaError:  # it may be known here soon, and what came behind it be the first to be taken
            if data.records is not None:
                replicas.expect_again(place, memoryview(data.records), self._context.services.env.clock.now_ms())
            raise

    def _place(self, topic: TopicProduceData, data: PartitionProduceData) -> AnyTopicPartition:
        return (topic.topic_id if self._context.version >= IDS_FROM else topic.name), data.index

    def _check_member(self, topic: TopicProduceData, data: PartitionProduceData, partition: Partition) -> None:
        context = self._context
        assert self._joined is not None
        try:
            self._joined.check_member(self._place(topic, data))
        except KafkaError:
            if data.records is not None:
                records = memoryview(data.records)
                partition.expect_again(records, 0, len(records), context.services.env.clock.now_ms())
            raise

    def _check_guard(
        self, joined: Joined, place: AnyTopicPartition, partition: Partition, records: memoryview, now_ms: int
    ) -> None:
        try:
            joined.check_guard(place, partition, records)
        except KafkaError:
            partition.expect_again(records, 0, len(records), now_ms)
            raise

    def _wait(self) -> None:
        self.waiting = len(self._pending)
        for partition, next_offset, response in self._pending:
            partition.wait_for_ack(next_offset, partial(self._acked, response), self)

    def _acked(self, response: PartitionProduceResponse, code: ErrorCode) -> None:
        if self.done:
            return
        if code:
            _fail(response, code)
        self.waiting -= 1
        if not self.waiting:
            self.done = True
            self.promise.resolve(self.answer())

    def expire(self) -> None:
        self.done = True
        for partition, next_offset, response in self._pending:
            if not response.error_code and partition.high_watermark < next_offset:
                _fail(response, ErrorCode.REQUEST_TIMED_OUT)
        self.promise.resolve(self.answer())

    def answer(self) -> ProduceResponse:
        response = self._response
        if any(p.current_leader.leader_id >= 0 for t in response.responses for p in t.partition_responses):
            response.node_endpoints = node_endpoints(NodeEndpoint, self._context)
        return response


def _fail(response: PartitionProduceResponse, code: ErrorCode) -> None:
    response.error_code = code
    response.base_offset = response.log_append_time_ms = response.log_start_offset = -1
