"""The data folders of brokers: what is free, and what partitions take."""

from dataclasses import dataclass, field

from tidelog.rpc.cluster import Cluster
from tidelog.rpc.connection import Connection
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.wire.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class LogDir:
    path: str
    error: str | None
    total_bytes: int | None
    """None where the broker doesn't tell."""
    usable_bytes: int | None
    sizes: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])


def log_dirs(connection: Connection) -> list[LogDir]:
    """Those of one broker, with every partition in them."""
    response = connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code), "describe the data folders")
    return [
        LogDir(
            each.log_dir,
            ErrorCode(each.error_code).name if each.error_code else None,
            each.total_bytes if each.total_bytes >= 0 else None,
            each.usable_bytes if each.usable_bytes >= 0 else None,
            {
                (topic.name, part.partition_index): part.partition_size
                for topic in each.topics
                for part in topic.partitions
            },
        )
        for each in response.results
    ]


def topic_bytes(cluster: Cluster) -> dict[str, int]:
    """What each topic takes on all brokers together."""
    sizes: dict[str, int] = {}
    for _, connection in cluster.brokers():
        for folder in log_dirs(connection):
            for (topic, _), size in folder.sizes.items():
                sizes[topic] = sizes.get(topic, 0) + size
    return sizes
