"""The offsets at which partitions begin, end, or reach a time."""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.rpc.bounds import TIMEOUT_MS
from tidelog.rpc.cluster import Cluster
from tidelog.rpc.connection import Connection
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.topic_partition import TopicPartition

LATEST = -1
EARLIEST = -2
READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Found(NamedTuple):
    """An offset and its record's timestamp; both are -1 where no record is as new as the time that was asked for."""

    offset: int
    timestamp_ms: int


def list_offsets(
    cluster: Cluster, places: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, Found]:
    """For each partition the offset of a time (ms), LATEST or EARLIEST; one request a leader.

    LATEST is the high watermark, or, with READ_COMMITTED, the last stable offset.
    """
    offsets: dict[TopicPartition, Found] = {}

    def once() -> dict[TopicPartition, Found]:
        left = {place: time for place, time in places.items() if place not in offsets}
        trouble: KafkaError | None = None
        for connection, part in _by_leader(cluster, left).items():
            trouble = _ask(connection, part, isolation, offsets) or trouble
        if trouble is not None:
            raise trouble
        return offsets

    return cluster.patiently("tell the offsets of partitions", once)


def _by_leader(
    cluster: Cluster, places: Mapping[TopicPartition, int]
) -> dict[Connection, list[tuple[TopicPartition, int, int]]]:
    grouped: dict[Connection, list[tuple[TopicPartition, int, int]]] = {}
    for (topic, index), time in places.items():
        connection, partition = cluster.leader(topic, index)
        grouped.setdefault(connection, []).append(((topic, index), time, partition.leader_epoch))
    return grouped


def _ask(
    connection: Connection,
    part: list[tuple[TopicPartition, int, int]],
    isolation: int,
    offsets: dict[TopicPartition, Found],
) -> KafkaError | None:
    """Fill `found`; the first error that may pass is returned, another is raised."""
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, index), time, epoch in part:
        entry = ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=time)
        topics.setdefault(name, ListOffsetsTopic(name=name)).partitions.append(entry)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=list(topics.values()), timeout_ms=TIMEOUT_MS
    )
    response = connection.ask(request, ListOffsetsResponse)
    trouble: KafkaError | None = None
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code:
                error = KafkaError(ErrorCode(each.error_code), f"the offsets of {topic.name}-{each.partition_index}")
                if not error.code.retriable:
                    raise error
                trouble = error
            else:
                offsets[topic.name, each.partition_index] = Found(each.offset, each.timestamp)
    return trouble
