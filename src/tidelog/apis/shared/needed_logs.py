"""Which partitions' logs a request needs, all APIs in one place.

After a start, logs on disk are opened when they are first needed, off the loop. A request waits for the ones that it
names before anything of it is done, as if the broker had not read it yet. What isn't listed here touches no log, or
waits by itself (WriteTxnMarkers, the ends of transactions) or never opens one (DescribeLogDirs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.coordinator.placement import CONSUMER_OFFSETS, TRANSACTION_STATE, partition_of
from tidelog.wire.keys import ApiKey
from tidelog.wire.topic_partition import AnyTopicPartition

if TYPE_CHECKING:
    from tidelog.metadata.image import ClusterImage

Needs: TypeAlias = "Callable[[int, Any, ClusterImage], Iterator[AnyTopicPartition]]"

PRODUCE_IDS_FROM = FETCH_IDS_FROM = 13


def needed(key: int, version: int, request: Any, image: ClusterImage) -> Iterator[AnyTopicPartition]:
    """The partitions whose logs a request of this API needs; there may be no such partitions."""
    places = NEEDS_BY_API.get(key)
    return iter(()) if places is None else places(version, request, image)


def _produce(version: int, request: Any, image: ClusterImage) -> Iterator[AnyTopicPartition]:
    for topic in request.topic_data:
        name = topic.topic_id if version >= PRODUCE_IDS_FROM else topic.name
        for partition in topic.partition_data:
            yield name, partition.index
    if request.transactional_id is not None:
        yield from _shards(image, TRANSACTION_STATE, (request.transactional_id,))


def _fetch(version: int, request: Any, image: ClusterImage) -> Iterator[AnyTopicPartition]:
    """Those of its session were named when they came to it. A follower's fetch waits for none: it may name thousands,
    and is told of each as it is open."""
    if max(request.replica_id, request.replica_state.replica_id) >= 0:
        return
    for topic in request.topics:
        name = topic.topic_id if version >= FETCH_IDS_FROM else topic.topic
        for partition in topic.partitions:
            yield name, partition.partition


def _offsets_of_topics(version: int, request: Any, image: ClusterImage) -> Iterator[AnyTopicPartition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.name, partition.partition_index


def _leader_epochs(version: int, request: Any, image: ClusterImage) -> Iterator[AnyTopicPartition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.topic, partition.partition


def _producers(version: int, request: Any, image: ClusterImage) -> Iterator[AnyTopicPartition]:
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield topic.name, index


def _shards(image: ClusterImage, topic: str, keys: Iterable[str | None]) -> Iterator[AnyTopicPartition]:
    known = image.topics.get(topic)
    if known is not None:
        for key in keys:
            if key:
                yield topic, partition_of(key, len(known.partitions))


def _all_shards(topic: str) -> Needs:
    def places(version: int, request: Any, image: ClusterImage) -> Iterator[AnyTopicPartition]:
        known = image.topics.get(topic)
        return iter(()) if known is None else ((topic, index) for index in range(len(known.partitions)))

    return places


def _shards_of(topic: str, keys: Callable[[Any], Iterable[str | None]]) -> Needs:
    def places(version: int, request: Any, image: ClusterImage) -> Iterator[AnyTopicPartition]:
        return _shards(image, topic, keys(request))

    return places


_of_group = _shards_of(CONSUMER_OFFSETS, lambda request: (request.group_id,))
_of_transaction = _shards_of(TRANSACTION_STATE, lambda request: (request.transactional_id,))


def _txn_offset_commit(version: int, request: Any, image: ClusterImage) -> Iterator[AnyTopicPartition]:
    yield from _of_group(version, request, image)
    yield from _of_transaction(version, request, image)


def _offset_fetch_groups(request: Any) -> Iterator[str]:
    yield request.group_id
    for group in request.groups:
        yield group.group_id


def _added_to(request: Any) -> Iterator[str]:
    yield request.v3_and_below_transactional_id
    for transaction in request.transactions:
        yield transaction.transactional_id


NEEDS_BY_API: dict[int, Needs] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _offsets_of_topics,
    ApiKey.DELETE_RECORDS: _offsets_of_topics,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _leader_epochs,
    ApiKey.DESCRIBE_PRODUCERS: _producers,
    ApiKey.JOIN_GROUP: _of_group,
    ApiKey.SYNC_GROUP: _of_group,
    ApiKey.HEARTBEAT: _of_group,
    ApiKey.LEAVE_GROUP: _of_group,
    ApiKey.OFFSET_COMMIT: _of_group,
    ApiKey.OFFSET_DELETE: _of_group,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _of_group,
    ApiKey.OFFSET_FETCH: _shards_of(CONSUMER_OFFSETS, _offset_fetch_groups),
    ApiKey.DESCRIBE_GROUPS: _shards_of(CONSUMER_OFFSETS, lambda request: request.groups),
    ApiKey.DELETE_GROUPS: _shards_of(CONSUMER_OFFSETS, lambda request: request.groups_names),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _shards_of(CONSUMER_OFFSETS, lambda request: request.group_ids),
    ApiKey.LIST_GROUPS: _all_shards(CONSUMER_OFFSETS),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.INIT_PRODUCER_ID: _of_transaction,
    ApiKey.END_TXN: _of_transaction,
    ApiKey.ADD_OFFSETS_TO_TXN: _of_transaction,
    ApiKey.ADD_PARTITIONS_TO_TXN: _shards_of(TRANSACTION_STATE, _added_to),
    ApiKey.DESCRIBE_TRANSACTIONS: _shards_of(TRANSACTION_STATE, lambda request: request.transactional_ids),
    ApiKey.LIST_TRANSACTIONS: _all_shards(TRANSACTION_STATE),
}
