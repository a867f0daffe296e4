"""Partitions that nobody serves, and why: a damaged file, a disk that failed, a broker that isn't there."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.client.bounds import ASKED_REASONS_MAX
from tidelog.rpc.cluster import Cluster
from tidelog.rpc.errors import Lost, Unsupported
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


@dataclass(frozen=True, slots=True)
class Offline:
    topic: str
    partition: int
    reason: str | None
    """None where the broker doesn't tell."""
    has_leader: bool = True

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def why(self) -> str:
        return self.reason or "its broker does not say why"

    @property
    def message(self) -> str:
        return f"{self.place} is offline: {self.why}"


def offline_partitions(cluster: Cluster, topics: Iterable[str] | None = None) -> list[Offline]:
    """Those of these topics, or of all: without a leader, or with a leader that says that its replica is offline."""
    asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    response = cluster.patiently("list the topics", lambda: cluster.any().ask(request, MetadataResponse))
    there = {broker.node_id for broker in response.brokers}
    partitions = [
        (topic.name, each.partition_index, each.leader_id, each.replica_nodes)
        for topic in response.topics
        for each in topic.partitions
        if topic.name and (each.leader_id not in there or each.leader_id in each.offline_replicas)
    ]
    return [
        Offline(topic, index, _reason(cluster, topic, index, number))
        if leader in there
        else Offline(topic, index, _absent(replicas, there), has_leader=False)
        for number, (topic, index, leader, replicas) in enumerate(sorted(partitions))
    ]


def _absent(replicas: list[int], there: set[int]) -> str:
    missing = [id for id in sorted(replicas) if id not in there]
    if not missing:
        return "it has no leader"
    if len(missing) == 1:
        return f"broker {missing[0]}, which has it, isn't there"
    return f"brokers {', '.join(map(str, missing))}, which have it, aren't there"


def _reason(cluster: Cluster, topic: str, index: int, number: int) -> str | None:
    """DescribeProducers is the one request that tells an error of a partition in words and changes nothing."""
    if number >= ASKED_REASONS_MAX:
        return None
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    try:
        connection, _ = cluster.leader(topic, index)
        [answer] = connection.ask(request, DescribeProducersResponse).topics[0].partitions
    except (KafkaError, Lost, Unsupported):
        return None
    return (answer.error_message or ErrorCode(answer.error_code).name) if answer.error_code else None
