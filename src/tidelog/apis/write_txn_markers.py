"""WriteTxnMarkers (key 27): how transactions ended, for partitions led here.

A coordinator elsewhere sends it; here it is also how an operator aborts a transaction that hangs, as
`kafka-transactions.sh abort` does. A partition whose marker can't be written yet is NOT_LEADER_OR_FOLLOWER: try again.

v1 is flexible; v2 names the transaction version, so that epochs are checked as it asks (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def handle(context: Context, request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    response = WriteTxnMarkersResponse()
    write = context.services.transactions.markers.write
    pending: list[tuple[WritableTxnMarkerPartitionResult, Promise[None]]] = []
    for asked in request.markers:
        marker = _marker(asked)
        result = WritableTxnMarkerResult(producer_id=asked.producer_id)
        for topic in asked.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            for index in topic.partition_indexes:
                place = WritableTxnMarkerPartitionResult(partition_index=index)
                partitions.append(place)
                pending.append((place, write(topic.name, index, marker)))
                yield
                if len(pending) == AT_ONCE:
                    yield from _tell(pending)
                    pending.clear()
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            yield
        response.markers.append(result)
        yield
    yield from _tell(pending)
    return response


def _tell(pending: list[tuple[WritableTxnMarkerPartitionResult, Promise[None]]]) -> Steps[None]:
    """When they are written, or can't be."""
    yield from settled(gather([promise for _, promise in pending]))
    for place, promise in pending:
        error = promise.error
        if isinstance(error, KafkaError):
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
