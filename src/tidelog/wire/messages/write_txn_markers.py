"""WriteTxnMarkers (key 27): the coordinator tells a partition's leader how a transaction ended.

v1 flexible; v2 the transaction version, so that epochs are checked as it asks.
"""

from tidelog.wire.codec import i8, i16, i32, i64, message, struct, wire


@struct
class WritableTxnMarkerTopic:
    name: str = ""
    partition_indexes: list[i32] = wire(factory=list)


@struct
class WritableTxnMarker:
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = wire(factory=list)
    coordinator_epoch: i32 = 0
    transaction_version: i8 = wire("2+", default=0, ignorable=True)


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = wire(factory=list)


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: i32 = 0
    error_code: i16 = 0


@struct
class WritableTxnMarkerTopicResult:
    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = wire(factory=list)


@struct
class WritableTxnMarkerResult:
    producer_id: i64 = 0
    topics: list[WritableTxnMarkerTopicResult] = wire(factory=list)


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = wire(factory=list)
