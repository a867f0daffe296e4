"""WriteTxnMarkers (key 27): how transactions ended, for partitions led here.

A coordinator elsewhere sends it; here it is also how an operator aborts a transaction that hangs, as
`kafka-transactions.sh abort` does. A partition whose marker can't be written yet is NOT_LEADER_OR_FOLLOWER: try again.

v1 is flexible; v2 names the transaction version, so that epochs are checked as it asks (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.txn.markers import EndMarker
from tidelog.env.promise import Promise, gather
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
    from tidelog.apis.context import Context


def handle(context: Context, request: WriteTxnMarkersRequest) -> Promise[WriteTxnMarkersResponse]:
    written: list[Promise[None]] = []
    response = WriteTxnMarkersResponse()
    places: list[WritableTxnMarkerPartitionResult] = []
    for asked in request.markers:
        marker = _marker(asked)
        result = WritableTxnMarkerResult(producer_id=asked.producer_id)
        for topic in asked.topics:
            partitions = [WritableTxnMarkerPartitionResult(partition_index=index) for index in topic.partition_indexes]
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            places += partitions
            written += [
                context.services.transactions.markers.write(topic.name, index, marker)
                for index in topic.partition_indexes
            ]
        response.markers.append(result)

    def all_written(promises: list[Promise[None]]) -> WriteTxnMarkersResponse:
        for place, promise in zip(places, promises, strict=True):
            error = promise.error
            if isinstance(error, KafkaError):
                place.error_code = error.code
            elif error is not None:
                place.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return response

    return gather(written).map(all_written)


def _marker(asked: WritableTxnMarker) -> EndMarker:
    return EndMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
