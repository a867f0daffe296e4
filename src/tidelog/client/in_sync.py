"""Partitions with fewer replicas in sync than they have, and those of them that are below their topic's minimum."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.client.bounds import ASKED_MINIMUMS_MAX
from tidelog.rpc.cluster import Cluster
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

TOPIC_RESOURCE = 2
MIN_IN_SYNC = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Lagging:
    topic: str
    partition: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    minimum: int | None = None
    """Of its topic; None where that isn't known."""

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def below_min(self) -> bool:
        return self.minimum is not None and len(self.in_sync) < self.minimum

    @property
    def missing(self) -> list[int]:
        return sorted(set(self.replicas) - set(self.in_sync))

    @property
    def has(self) -> str:
        return f"in sync {', '.join(map(str, self.in_sync)) or 'none'} of {', '.join(map(str, self.replicas))}"


def lagging_partitions(cluster: Cluster) -> list[Lagging]:
    """Those that have a leader; the others are offline, which is told elsewhere."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response = cluster.patiently("list the topics", lambda: cluster.any().ask(request, MetadataResponse))
    there = {broker.node_id for broker in response.brokers}
    behind = [
        Lagging(topic.name, each.partition_index, tuple(sorted(each.replica_nodes)), tuple(sorted(each.isr_nodes)))
        for topic in response.topics
        for each in topic.partitions
        if topic.name and each.leader_id in there and len(each.isr_nodes) < len(each.replica_nodes)
    ]
    minimums = _minimums(cluster, sorted({each.topic for each in behind})[:ASKED_MINIMUMS_MAX])
    told = [
        Lagging(each.topic, each.partition, each.replicas, each.in_sync, minimums.get(each.topic)) for each in behind
    ]
    return sorted(told, key=lambda each: (each.topic, each.partition))


def _minimums(cluster: Cluster, topics: Iterable[str]) -> dict[str, int]:
    asked = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[MIN_IN_SYNC])
        for name in topics
    ]
    if not asked:
        return {}
    results = cluster.any().ask(DescribeConfigsRequest(resources=asked), DescribeConfigsResponse).results
    return {
        result.resource_name: int(each.value)
        for result in results
        for each in result.configs
        if each.name == MIN_IN_SYNC and each.value
    }
