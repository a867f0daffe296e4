"""A group's committed offsets, written and read from outside the group: so that its lag shows where operators look."""

from collections.abc import Mapping

from tidelog.rpc.address import Address
from tidelog.rpc.cluster import Cluster
from tidelog.rpc.connection import Connection
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tidelog.wire.topic_partition import TopicPartition

GROUP = 0
TRANSACTION = 1
OF_SPARK_SINKS = "tidelog-spark-"
"""How groups and transactional ids are named of Spark's sinks: no consumer is in such a group, it keeps which batches
are decided."""
_BY_KEY_VERSION_MAX = 3  # later versions ask for many keys at once
_FETCH_VERSION_MAX = 7  # later versions ask for many groups at once
_COMMIT_VERSION_MAX = 9  # v10 names topics by id


def coordinator(cluster: Cluster, key: str, kind: int = GROUP) -> Connection:
    """A connection to the coordinator of a group or a transactional id."""

    def find() -> Address:
        request = FindCoordinatorRequest(key=key, key_type=kind)
        response = cluster.any().ask(request, FindCoordinatorResponse, _BY_KEY_VERSION_MAX)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), response.error_message or f"the coordinator of {key}")
        return Address(response.host, response.port)

    return cluster.coordinator(kind, key, find)


def committed_offset(
    cluster: Cluster, group: str, place: TopicPartition, *, stable: bool = True
) -> tuple[int, str] | None:
    """The offset that the group committed and the note that came with it.

    Waits for a transaction that is about to change it, or, without `stable`, tells what holds until that is committed.
    """
    asked = OffsetFetchRequestTopic(name=place[0], partition_indexes=[place[1]])
    request = OffsetFetchRequest(group_id=group, topics=[asked], require_stable=stable)

    def once() -> tuple[int, str] | None:
        response = coordinator(cluster, group).ask(request, OffsetFetchResponse, _FETCH_VERSION_MAX)
        if response.error_code:  # of the group as a whole: nothing else is told then
            raise KafkaError(ErrorCode(response.error_code), f"the offsets of group {group}")
        [answer] = response.topics[0].partitions
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), f"the offset of group {group} in {place[0]}-{place[1]}")
        return None if answer.committed_offset < 0 else (answer.committed_offset, answer.metadata or "")

    return cluster.patiently(f"tell the offsets of group {group}", once)


def committed_topics(cluster: Cluster, group: str) -> list[str]:
    """The topics in which the group has committed offsets."""
    request = OffsetFetchRequest(group_id=group, topics=None)

    def once() -> list[str]:
        response = coordinator(cluster, group).ask(request, OffsetFetchResponse, _FETCH_VERSION_MAX)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"the offsets of group {group}")
        return sorted(topic.name for topic in response.topics)

    return cluster.patiently(f"tell the offsets of group {group}", once)


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the group's offsets; it must have no members, as it is with a reader that manages its own place."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), offset in offsets.items():
        entry = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topics.setdefault(name, OffsetCommitRequestTopic(name=name)).partitions.append(entry)
    request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))

    def once() -> None:
        response = coordinator(cluster, group).ask(request, OffsetCommitResponse, _COMMIT_VERSION_MAX)
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code:
                    raise KafkaError(
                        ErrorCode(each.error_code), f"commit {topic.name}-{each.partition_index} for group {group}"
                    )

    cluster.patiently(f"commit offsets of group {group}", once)
