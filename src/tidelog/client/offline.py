"""Partitions that nobody serves, and why: a damaged file, a disk that failed, a broker that isn't there."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.client.bounds import ASKED_REASONS_MAX
from tidelog.rpc.address import Address
from tidelog.rpc.cluster import Cluster
from tidelog.rpc.errors import Lost, Unsupported
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)


@dataclass(frozen=True, slots=True)
class Offline:
    topic: str
    partition: int
    reason: str | None
    """None where the broker doesn't tell."""
    advice: str | None = None
    """What brings it back, where its files are not the trouble."""

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
    silent = _silent(cluster, response)
    partitions = [
        (topic.name, each.partition_index, each)
        for topic in response.topics
        for each in topic.partitions
        if topic.name
        and (each.leader_id not in there or each.leader_id in silent or each.leader_id in each.offline_replicas)
    ]
    found: list[Offline] = []
    for number, (topic, index, each) in enumerate(sorted(partitions, key=lambda one: one[:2])):
        if each.leader_id not in there:
            found.append(_without_leader(topic, each, there))
        elif each.leader_id in silent:
            why = f"broker {each.leader_id}, which leads it, doesn't answer"
            found.append(
                Offline(topic, index, why, f"start broker {each.leader_id}, or look at its process and its log")
            )
        else:
            found.append(Offline(topic, index, _reason(cluster, topic, index, number)))
    return found


def _silent(cluster: Cluster, response: MetadataResponse) -> set[int]:
    """Brokers that lead and don't answer. Nobody takes their partitions as long as there is no active controller, or
    none that has missed them yet; each one is knocked at once, instead of for each partition until patience ends."""
    leaders = {each.leader_id for topic in response.topics for each in topic.partitions}
    silent: set[int] = set()
    for broker in response.brokers:
        if broker.node_id in leaders:
            try:
                cluster.connection(Address(broker.host, broker.port))
            except Lost:
                silent.add(broker.node_id)
    return silent


def _without_leader(topic: str, each: MetadataResponsePartition, there: set[int]) -> Offline:
    """Only replicas that were in sync may lead; which others are eligible isn't told."""
    missing = sorted(set(each.isr_nodes) - there) or sorted(set(each.replica_nodes) - there)
    if not missing:
        had = ", ".join(map(str, sorted(each.replica_nodes)))
        return Offline(
            topic,
            each.partition_index,
            f"brokers that had it ({had}) are there, but none of them surely has all that was acknowledged",
            "a disk was wiped, or is an older copy: bring back the one with the records; without it "
            "`kafka-leader-election --election-type unclean` takes a replica that is there: what it lacks is lost",
        )
    if len(missing) == 1:
        why, advice = f"broker {missing[0]}, which has it, isn't there", "start the broker that has it"
    else:
        listed = ", ".join(map(str, missing))
        why, advice = f"brokers {listed}, which have it, aren't there", "start one of the brokers that have it"
    return Offline(topic, each.partition_index, why, advice)


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
