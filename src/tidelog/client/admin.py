"""Topics: made, listed, described, changed and deleted."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import confluent_kafka.admin
from confluent_kafka import KafkaException, TopicCollection, TopicPartition

from tidelog.client.connect import REQUEST_TIMEOUT_S, knock, settings
from tidelog.client.errors import ClientError, from_kafka

T = TypeVar("T")

library: Any = confluent_kafka.admin  # its own types are partial, so they end here


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader: int
    replicas: list[int]
    isr: list[int]
    start: int | None = None  # first offset, where it was asked for
    end: int | None = None  # the offset that the next record gets


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: list[Partition]
    id: str | None = None
    configs: dict[str, str] = field(default_factory=dict[str, str])  # those that were set for the topic

    @property
    def internal(self) -> bool:
        return self.name in ("__consumer_offsets", "__transaction_state", "__share_group_state")

    @property
    def replication(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


class Admin:
    """A connection for administration; every failure is a ClientError."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        knock(bootstrap)
        self._client: Any = library.AdminClient(settings(bootstrap))

    def create_topic(
        self, name: str, partitions: int = -1, replication: int = -1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; -1 takes the broker's default."""
        new = library.NewTopic(
            name, num_partitions=partitions, replication_factor=replication, config=dict(configs or {})
        )
        self._wait(self._client.create_topics([new], operation_timeout=REQUEST_TIMEOUT_S)[name], f"create topic {name}")

    def delete_topic(self, name: str) -> None:
        deleted = self._client.delete_topics([name], operation_timeout=REQUEST_TIMEOUT_S)
        self._wait(deleted[name], f"delete topic {name}")

    def add_partitions(self, name: str, total: int) -> None:
        """Grow the topic to `total` partitions."""
        grown = self._client.create_partitions([library.NewPartitions(name, total)])
        self._wait(grown[name], f"grow topic {name} to {total} partitions")

    def alter_configs(self, name: str, values: Mapping[str, str], unset: tuple[str, ...] = ()) -> None:
        """Set and unset configs of a topic; the others stay."""
        changes = [
            library.ConfigEntry(config, value, incremental_operation=library.AlterConfigOpType.SET)
            for config, value in values.items()
        ] + [
            library.ConfigEntry(config, None, incremental_operation=library.AlterConfigOpType.DELETE)
            for config in unset
        ]
        resource = library.ConfigResource(library.ResourceType.TOPIC, name, incremental_configs=changes)
        altered = self._client.incremental_alter_configs([resource])
        self._wait(altered[resource], f"change the settings of topic {name}")

    def topics(self) -> list[Topic]:
        """Every topic with its partitions, by name."""
        found = self._metadata()
        return [self._topic(found[name]) for name in sorted(found)]

    def topic(self, name: str) -> Topic:
        """One topic with its partitions, their first and next offsets, and the configs that were set for it."""
        found = self._metadata().get(name)
        if found is None:
            raise ClientError(
                f"there is no topic {name}",
                "`tidelog topic list` shows the topics there are, `tidelog topic create` makes one",
            )
        plain = self._topic(found)
        starts = self._offsets(plain, library.OffsetSpec.earliest())
        ends = self._offsets(plain, library.OffsetSpec.latest())
        partitions = [
            Partition(p.index, p.leader, p.replicas, p.isr, starts.get(p.index), ends.get(p.index))
            for p in plain.partitions
        ]
        return Topic(name, partitions, self._topic_id(name), self._configs(name))

    def _metadata(self) -> dict[str, Any]:
        """All topics: to ask for one by its name could make the broker create it."""
        try:
            return self._client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        except KafkaException as error:
            raise from_kafka(error, self._bootstrap, "list the topics") from None

    def _topic(self, found: Any) -> Topic:
        partitions = [
            Partition(p.id, p.leader, list(p.replicas), list(p.isrs))
            for p in sorted(found.partitions.values(), key=lambda p: p.id)
        ]
        return Topic(found.topic, partitions)

    def _topic_id(self, name: str) -> str | None:
        described = self._client.describe_topics(TopicCollection([name]), request_timeout=REQUEST_TIMEOUT_S)
        text = str(self._wait(described[name], f"describe topic {name}").topic_id)
        return text.replace("+", "-").replace("/", "_")  # as Kafka's own tools and files write it

    def _configs(self, name: str) -> dict[str, str]:
        resource = library.ConfigResource(library.ResourceType.TOPIC, name)
        described = self._client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
        entries = self._wait(described[resource], f"describe the settings of topic {name}")
        own = library.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {entry.name: entry.value for entry in entries.values() if entry.source == own}

    def _offsets(self, topic: Topic, which: object) -> dict[int, int]:
        asked = {TopicPartition(topic.name, partition.index): which for partition in topic.partitions}
        answers = self._client.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
        return {
            place.partition: self._wait(answer, f"ask for the offsets of {topic.name}").offset
            for place, answer in answers.items()
        }

    def _wait(self, answer: "Future[T]", doing: str) -> T:
        try:
            return answer.result(REQUEST_TIMEOUT_S * 2)
        except KafkaException as error:
            raise from_kafka(error, self._bootstrap, doing) from None
