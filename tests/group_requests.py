"""Group requests over a plain connection: commits, joins, heartbeats, for tests that play the members themselves."""

import struct
import time
from collections.abc import Mapping
from typing import Any

from tests.raw import Connection
from tidelog.wire.keys import ApiKey
from tidelog.wire.topic_partition import TopicPartition

COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
LATER = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
DEADLINE_S = 20.0


def find_coordinator(connection: Connection, group: str) -> None:
    """Wait until the group has a coordinator that has loaded its groups."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = connection.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})
        if not answer.coordinators[0].error_code:
            fetched = connection.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": group, "topics": None}]})
            if fetched.groups[0].error_code not in LATER:
                return
        assert time.monotonic() < deadline, f"{group} has no coordinator"
        time.sleep(0.01)


def commit_fields(
    group: str, offsets: Mapping[TopicPartition, int], generation: int = -1, member: str = "", **more: Any
) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        topics.setdefault(topic, []).append(part)
    named = [{"name": topic, "partitions": parts} for topic, parts in topics.items()]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": named,
        **more,
    }


def commit(
    connection: Connection,
    group: str,
    offsets: Mapping[TopicPartition, int],
    generation: int = -1,
    member: str = "",
    *,
    version: int = 9,
) -> dict[TopicPartition, int]:
    """OffsetCommit: each partition's error code."""
    answer = connection.ask(ApiKey.OFFSET_COMMIT, version, commit_fields(group, offsets, generation, member))
    return {(topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions}


def committed(connection: Connection, group: str) -> dict[TopicPartition, int]:
    """OffsetFetch of everything that the group committed."""
    answer = connection.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": group, "topics": None}]}).groups[0]
    assert answer.error_code == 0, f"the offsets of {group} can't be fetched: {answer.error_code}"
    assert not any(part.error_code for topic in answer.topics for part in topic.partitions)
    return {
        (topic.name, part.partition_index): part.committed_offset
        for topic in answer.topics
        for part in topic.partitions
    }


def subscription(*topics: str, version: int = 1) -> bytes:
    """ConsumerProtocolSubscription as a classic member sends it; no user data, nothing owned."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    owned = struct.pack(">i", 0) if version >= 1 else b""
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1) + owned


def assignment(topic: str, *partitions: int) -> bytes:
    """ConsumerProtocolAssignment, as a classic group's leader computes it."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    parts = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 1, 1) + name + parts + struct.pack(">i", -1)


def join_fields(group: str, topic: str, member: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(topic)}],
        **more,
    }


def join_alone(connection: Connection, group: str, topic: str, *partitions: int) -> tuple[str, int]:
    """One classic member joins and takes these partitions: its id and the generation."""
    first = connection.ask(ApiKey.JOIN_GROUP, 5, join_fields(group, topic))
    joined = connection.ask(ApiKey.JOIN_GROUP, 5, join_fields(group, topic, first.member_id))
    assert joined.error_code == 0, f"{group} was not joined: {joined.error_code}"
    synced = connection.ask(
        ApiKey.SYNC_GROUP,
        3,
        {
            "group_id": group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "assignments": [{"member_id": joined.member_id, "assignment": assignment(topic, *partitions)}],
        },
    )
    assert synced.error_code == 0, f"{group} was not synced: {synced.error_code}"
    return joined.member_id, joined.generation_id


def heartbeat_fields(group: str, member: str, epoch: int, **more: Any) -> dict[str, Any]:
    """ConsumerGroupHeartbeat; with epoch 0 everything that a first one must say."""
    fields: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": epoch, "rebalance_timeout_ms": -1}
    fields |= {"subscribed_topic_names": None, "server_assignor": None, "topic_partitions": None}
    if epoch == 0:
        fields |= {"rebalance_timeout_ms": 10_000, "topic_partitions": []}
    return fields | more
