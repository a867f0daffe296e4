"""WriteTxnMarkers (key 27): how transactions ended, for partitions led here.

A coordinator elsewhere sends it (coordinator/txn/delivery.py); it is also how an operator aborts a transaction that
hangs, as `kafka-transactions.sh abort` does. A partition whose marker can't be written yet is NOT_LEADER_OR_FOLLOWER,
one whose marker isn't committed in time REQUEST_TIMED_OUT: try again, it ends nothing twice. The time is short, since
markers of other partitions wait behind it on the coordinator's connection.

v1 is flexible; v2 names the transaction version, so that epochs are checked as it asks (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.coordinator.txn.markers import EndMarker
from tidelog.env.promise import Promise, gather
from tidelog.env.slices import Steps, settled
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

AT_ONCE = 512
"""Markers that are on their way to their logs at once."""
WAIT_S = 2.0
"""How long a request waits for its markers to be committed."""

_Pending: TypeAlias = list[tuple[WritableTxnMarkerPartitionResult, Promise[None]]]


def handle(context: Context, request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    response = WriteTxnMarkersResponse()
    transactions = context.services.transactions
    over: Promise[None] = Promise()
    timer = context.services.env.loop.call_later(WAIT_S, over.resolve, None)
    pending: _Pending = []
    for asked in request.markers:
        marker = _marker(asked)
        result = WritableTxnMarkerResult(producer_id=asked.producer_id)
        for topic in asked.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            for index in topic.partition_indexes:
                place = WritableTxnMarkerPartitionResult(partition_index=index)
                partitions.append(place)
                if transactions.senders.is_newest(context.client_id, context.connection_id):
                    written = transactions.markers.write(topic.name, index, marker)
                else:  # whoever sent it doesn't wait for it any more
                    written = Promise[None].failed(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                pending.append((place, written))
                yield
                if len(pending) == AT_ONCE:
                    yield from _tell(pending, over)
                    pending.clear()
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            yield
        response.markers.append(result)
        yield
    yield from _tell(pending, over)
    timer.cancel()
    return response


def _tell(pending: _Pending, over: Promise[None]) -> Steps[None]:
    """When they are written, or can't be, or the time is `over`."""
    told: Promise[None] = Promise()

    def tell(_: Promise[Any]) -> None:
        if not told.done:
            told.resolve(None)

    gather([promise for _, promise in pending]).on_done(tell)
    over.on_done(tell)
    yield from settled(told)
    for place, promise in pending:
        error = promise.error
        if not promise.done:
            place.error_code = ErrorCode.REQUEST_TIMED_OUT
        elif isinstance(error, KafkaError):
            place.error_code = error.code
        elif error is not None:
            place.error_code = ErrorCode.UNKNOWN_SERVER_ERROR


def _marker(asked: WritableTxnMarker) -> EndMarker:
    return EndMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
