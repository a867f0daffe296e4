"""Making a topic."""

from collections.abc import Mapping

from tidelog.rpc.bounds import TIMEOUT_MS
from tidelog.rpc.cluster import Cluster
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def create_topic(cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    """Create a topic with the broker's default replication; TOPIC_ALREADY_EXISTS where it is there."""
    given = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=given)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)

    def once() -> None:
        [answer] = cluster.any().ask(request, CreateTopicsResponse, wait_s=TIMEOUT_MS / 1000).topics
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message or f"create topic {name}")

    cluster.patiently(f"create topic {name}", once)
    cluster.forget()
