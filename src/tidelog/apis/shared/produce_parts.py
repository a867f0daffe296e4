"""Produce requests that name many partitions: handled part by part, a little in each turn of the loop.

Each part is a request of its own, for a few of the partitions, and what comes of all of them is one answer. What has to
be done off the loop before a partition can be written to is begun for all of them first. Those that come behind it on
its connection wait, so that nothing comes between its parts but what others send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from struct import Struct
from typing import TypeAlias

from tidelog.apis.shared.staged import Staged
from tidelog.env.promise import Promise, gather
from tidelog.env.slices import Steps, mapped, settled
from tidelog.wire.batch import PRODUCER_AT, is_transactional
from tidelog.wire.errors import ErrorCode, MalformedError
from tidelog.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData, TopicProduceResponse

PARTITIONS_A_PART = 16
PARTITIONS_A_PART_OF_TRANSACTION = 256
"""More at once, since the transaction's coordinator is asked for each part."""
LOOKED_AT_A_STEP = 64

REFUSED_IN_WORDS = {
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional records without a transactional id",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "transactional records of more than one producer",
}
"""Why nothing of a request is taken."""

Outcome: TypeAlias = "ProduceResponse | Staged[ProduceResponse] | None"

_read_producer = Struct(">qh").unpack_from  # producer id, epoch


def in_parts(
    request: ProduceRequest,
    waits: Callable[[ProduceRequest], Promise[None] | None],
    handle: Callable[[ProduceRequest], Outcome],
) -> Steps[ProduceResponse | None]:
    """`waits` gives what a part has to wait for, `handle` appends one."""
    waiting = yield from _begin(request, waits)
    if waiting:
        yield from settled(gather(waiting))
    outcomes: list[tuple[int, Promise[ProduceResponse | None]]] = []
    failed: MalformedError | None = None
    for number, part in _parts(request):
        try:
            outcome = handle(part)
        except MalformedError as error:  # with acks=0: told when all were tried
            failed = failed or error
            continue
        if isinstance(outcome, Staged):
            if outcome.appended is not None:
                yield from settled(outcome.appended)
            outcomes.append((number, outcome.answer))
        else:
            outcomes.append((number, Promise[ProduceResponse | None].resolved(outcome)))
        yield
    if failed is not None:
        raise failed
    if request.acks:
        return (yield from _joined(request, outcomes))
    for _, promise in outcomes:  # one that had to wait for its part of the transaction, or for a look, tells here
        yield from settled(promise)
    return None


def _begin(
    request: ProduceRequest, waits: Callable[[ProduceRequest], Promise[None] | None]
) -> Steps[list[Promise[None]]]:
    waiting: list[Promise[None]] = []
    for _, part in _parts(request):
        begun = waits(part)
        if begun is not None:
            waiting.append(begun)
        yield
    return waiting


def _parts(request: ProduceRequest) -> Iterator[tuple[int, ProduceRequest]]:
    """With the number of the topic that each belongs to."""
    size = PARTITIONS_A_PART if request.transactional_id is None else PARTITIONS_A_PART_OF_TRANSACTION
    for number, topic in enumerate(request.topic_data):
        for first in range(0, len(topic.partition_data), size):
            few = topic.partition_data[first : first + size]
            yield (
                number,
                ProduceRequest(
                    transactional_id=request.transactional_id,
                    acks=request.acks,
                    timeout_ms=request.timeout_ms,
                    topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=few)],
                ),
            )


def _joined(
    request: ProduceRequest, outcomes: list[tuple[int, Promise[ProduceResponse | None]]]
) -> Steps[ProduceResponse]:
    """One answer, once all parts are answered."""
    answer = ProduceResponse(responses=(yield from mapped(_response, request.topic_data)))
    for number, promise in outcomes:
        part = yield from settled(promise)
        assert part is not None
        answer.responses[number].partition_responses += part.responses[0].partition_responses
        answer.node_endpoints = answer.node_endpoints or part.node_endpoints
        yield
    return answer


def _response(topic: TopicProduceData) -> TopicProduceResponse:
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[])


def refused_in_parts(
    request: ProduceRequest, refuse: Callable[[ProduceRequest], ProduceResponse]
) -> Steps[ProduceResponse]:
    """The answer to a request that is refused as a whole: `refuse` tells so of a part."""
    outcomes: list[tuple[int, Promise[ProduceResponse | None]]] = []
    for number, part in _parts(request):
        outcomes.append((number, Promise[ProduceResponse | None].resolved(refuse(part))))
        yield
    return (yield from _joined(request, outcomes))


def refusal_of(request: ProduceRequest) -> Steps[ErrorCode | None]:
    """Why nothing of the request is taken, whatever its batches are."""
    if not -1 <= request.acks <= 1:
        return ErrorCode.INVALID_REQUIRED_ACKS
    producers: set[tuple[int, int]] = set()
    every = (data.records for topic in request.topic_data for data in topic.partition_data)
    while some := list(islice(every, LOOKED_AT_A_STEP)):
        producers.update(
            _read_producer(records, PRODUCER_AT)
            for records in some
            if records is not None and is_transactional(records)
        )
        if producers and request.transactional_id is None:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if len({producer for producer in producers if producer[0] >= 0}) > 1:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        yield
    return None
