"""DescribeQuorum (key 55): the metadata quorum: its leader, and how far each voter and observer has come (KIP-595).

Only partition 0 of `__cluster_metadata` can be asked for. v1 tells when replicas fetched last, v2 their directories
and where the voters listen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.names import METADATA_TOPIC
from tidelog.env.slices import Steps, mapped
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.raft.voters import ReplicaKey

FIRST_WITH_NODES = 2
UNKNOWN = -1


def handle(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse | Steps[DescribeQuorumResponse]:
    if not _is_quorum(request.topics):
        return _all_failed(
            request.topics,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Only {METADATA_TOPIC}-0 has a quorum to describe.",
        )
    quorum = context.services.quorum
    if quorum.leader_id != quorum.local.key.id:
        return _all_failed(
            request.topics, ErrorCode.NOT_LEADER_OR_FOLLOWER, f"The quorum's leader is {quorum.leader_id}."
        )
    voters = [voter.key for voter in quorum.voters.voters]
    described = ResponsePartitionData(
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark if quorum.leads else UNKNOWN,
        current_voters=[_state(context, key) for key in voters],
        observers=[_state(context, key) for key in _observers(context)],
    )
    nodes = [
        Node(
            node_id=voter.key.id,
            listeners=[Listener(name=one.name, host=one.host, port=one.port) for one in voter.endpoints],
        )
        for voter in quorum.voters.voters
    ]
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[described])],
        nodes=nodes if context.version >= FIRST_WITH_NODES else [],
    )


def _observers(context: Context) -> list[ReplicaKey]:
    """Those that fetched lately, and this node where it leads though it was taken out of the voters."""
    raft, quorum = context.services.raft, context.services.quorum
    leader = [] if quorum.voters.is_voter(quorum.local.key) else [quorum.local.key]
    now_ms = context.services.env.clock.now_ms()
    return sorted(leader + raft.server.progress.observers(quorum.epoch, now_ms, quorum.voters.is_voter))


def _state(context: Context, key: ReplicaKey) -> ReplicaState:
    quorum, raft = context.services.quorum, context.services.raft
    if key.id == quorum.leader_id:
        end, fetch_ms = quorum.log_end, context.services.env.clock.now_ms()
        caught_up_ms = fetch_ms
    else:
        end = next((end for other, end in quorum.quorum.replica_ends.items() if other.is_same(key)), UNKNOWN)
        fetch_ms, caught_up_ms, _ = raft.server.progress.of(quorum.epoch, key)
    return ReplicaState(
        replica_id=key.id,
        replica_directory_id=key.directory_id if context.version >= FIRST_WITH_NODES else bytes(16),
        log_end_offset=end,
        last_fetch_timestamp=fetch_ms,
        last_caught_up_timestamp=caught_up_ms,
    )


def _is_quorum(topics: list[RequestTopicData]) -> bool:
    """Whether it is the one partition that can be asked for."""
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC:
        return False
    partitions = topics[0].partitions
    return len(partitions) == 1 and partitions[0].partition_index == 0


def _all_failed(asked: list[RequestTopicData], code: ErrorCode, message: str) -> Steps[DescribeQuorumResponse]:
    def failed(partition: RequestPartitionData) -> ResponsePartitionData:
        return ResponsePartitionData(partition_index=partition.partition_index, error_code=code, error_message=message)

    topics: list[ResponseTopicData] = []
    for topic in asked:
        partitions = yield from mapped(failed, topic.partitions)
        topics.append(ResponseTopicData(topic_name=topic.topic_name, partitions=partitions))
    return DescribeQuorumResponse(topics=topics)
