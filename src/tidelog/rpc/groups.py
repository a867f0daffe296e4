"""A group's committed offsets, written and read from outside the group: so that its lag shows where operators look."""

from collections.abc import Mapping

from tidelog.rpc.cluster import Cluster
from tidelog.rpc.connection import Connection
from tidelog.rpc.offsets import Place
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

GROUP = 0
TRANSACTION = 1
_BY_KEY_VERSION_MAX = 3  # later versions ask for many keys at once
_COMMIT_VERSION_MAX = 9  # v10 names topics by id


def coordinator(cluster: Cluster, key: str, kind: int = GROUP) -> Connection:
    """A connection to the coordinator of a group or a transactional id."""
    request = FindCoordinatorRequest(key=key, key_type=kind)
    response = cluster.any().ask(request, FindCoordinatorResponse, _BY_KEY_VERSION_MAX)
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code), response.error_message or f"the coordinator of {key}")
    return cluster.broker(response.node_id, response.host, response.port)


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[Place, int]) -> None:
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
