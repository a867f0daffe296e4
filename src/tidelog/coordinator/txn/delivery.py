"""Markers on their way: to partitions led here by a plain call, to those of other brokers with WriteTxnMarkers.

The leader is looked up when a marker is about to be written. Whatever goes wrong, the marker fails and is tried again
from there (ending.py), perhaps at another leader; what was written twice ends nothing twice.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.coordinator.bounds import MARKERS_TOGETHER
from tidelog.env.promise import Promise
from tidelog.metadata.image import NO_LEADER
from tidelog.wire.errors import ErrorCode, KafkaError, error_code
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from tidelog.coordinator.txn.broker_queues import BrokerQueues
    from tidelog.coordinator.txn.markers import EndMarker, Markers
    from tidelog.metadata.follow import Follower
    from tidelog.wire.topic_partition import TopicPartition


class Addressed(NamedTuple):
    """A marker for a partition that another broker leads."""

    place: TopicPartition
    marker: EndMarker
    written: Promise[None]


class Delivery:
    def __init__(self, node_id: int, metadata: Follower, here: Markers, elsewhere: BrokerQueues[Addressed]) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._here = here
        self._elsewhere = elsewhere

    def is_here(self, topic: str, index: int) -> bool:
        """Whether this broker leads the partition, or nobody can be asked about it."""
        image = self._metadata.image.partition(topic, index)
        return image is None or image.leader == self._node_id

    def write(self, topic: str, index: int, marker: EndMarker) -> Promise[None]:
        """Resolves when the marker is committed; fails with what is known of why not."""
        image = self._metadata.image.partition(topic, index)
        if image is None:
            return Promise[None].failed(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if image.leader == self._node_id:
            return self._here.write(topic, index, marker)
        if image.leader == NO_LEADER:
            return Promise[None].failed(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader"))
        addressed = Addressed((topic, index), marker, Promise())
        self._elsewhere.ask(image.leader, addressed)
        return addressed.written

    def close(self) -> None:
        self._elsewhere.close()


class MarkerDialogue:
    """WriteTxnMarkers: the markers of any number of transactions, each with its partitions.

    Answers name the producer only, so that a request has one marker of each.
    """

    def request(self, waiting: deque[Addressed]) -> tuple[WriteTxnMarkersRequest, list[Addressed]]:
        some: list[Addressed] = []
        later: list[Addressed] = []
        by_producer: dict[int, EndMarker] = {}
        places: dict[EndMarker, dict[str, list[int]]] = {}
        while waiting and len(some) < MARKERS_TOGETHER:
            one = waiting.popleft()
            marker = one.marker
            if by_producer.setdefault(marker.producer_id, marker) != marker:  # of a shard that was loaded again since
                later.append(one)
                continue
            topic, index = one.place
            places.setdefault(marker, {}).setdefault(topic, []).append(index)
            some.append(one)
        waiting.extendleft(reversed(later))
        markers = [
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.commit,
                topics=[WritableTxnMarkerTopic(name=name, partition_indexes=topics[name]) for name in topics],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.version,
            )
            for marker, topics in places.items()
        ]
        return WriteTxnMarkersRequest(markers=markers), some

    def answered(self, asked: list[Addressed], response: WriteTxnMarkersResponse) -> None:
        codes: dict[tuple[int, TopicPartition], int] = {}
        for result in response.markers:
            for topic in result.topics:
                for place in topic.partitions:
                    codes.setdefault((result.producer_id, (topic.name, place.partition_index)), place.error_code)
        for place, marker, written in asked:
            code = codes.get((marker.producer_id, place), ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _AS_WRITTEN:
                written.resolve(None)
            else:
                written.fail(KafkaError(error_code(code), "its leader says so"))

    def failed(self, asked: list[Addressed], error: Exception) -> None:
        refused: Any = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
        for one in asked:
            one.written.fail(refused)


_AS_WRITTEN = frozenset((ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT))
"""In a partition of the oldest formats, which an Apache broker may have, there is no transaction to end."""
