"""Topics: made, listed, described, changed and deleted."""

from collections.abc import Collection, Generator, Iterable, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import confluent_kafka.admin
from confluent_kafka import KafkaException, TopicCollection, TopicPartition

from tidelog.client.cluster import connected
from tidelog.client.connect import REQUEST_TIMEOUT_S, knock, settings
from tidelog.client.errors import ClientError, from_kafka, unknown_topic
from tidelog.client.log_dirs import topic_bytes
from tidelog.client.offline import offline_partitions
from tidelog.client.start import Start

T = TypeVar("T")

library: Any = confluent_kafka.admin  # its own types are partial, so they end here

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader: int
    replicas: list[int]
    isr: list[int]
    offline: str | None = None  # why its leader can't serve it, where it was asked for
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
        return self.name in INTERNAL_TOPICS

    @property
    def replication(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class Trim:
    """What deleting the first records of a partition comes to: it starts at `new` then. `offline`: why nothing of it
    can be deleted."""

    partition: int
    start: int
    end: int
    new: int
    offline: str | None = None

    @property
    def records(self) -> int:
        return self.new - self.start


@contextmanager
def _in_bounds(doing: str) -> Generator[None]:
    """The library refuses some numbers by itself, before any broker is asked."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise ClientError(
            f"cannot {doing}: {error}", "at most 100,000 partitions and 10,000 replicas can be asked for at once"
        ) from None


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
        doing = f"create topic {name}"
        with _in_bounds(doing):
            new = library.NewTopic(
                name, num_partitions=partitions, replication_factor=replication, config=dict(configs or {})
            )
            created = self._client.create_topics([new], operation_timeout=REQUEST_TIMEOUT_S)
        self._wait(created[name], doing)

    def delete_topic(self, name: str) -> None:
        deleted = self._client.delete_topics([name], operation_timeout=REQUEST_TIMEOUT_S)
        self._wait(deleted[name], f"delete topic {name}")

    def add_partitions(self, name: str, total: int) -> None:
        """Grow the topic to `total` partitions."""
        doing = f"grow topic {name} to {total} partitions"
        with _in_bounds(doing):
            grown = self._client.create_partitions([library.NewPartitions(name, total)])
        self._wait(grown[name], doing)

    def trim_plan(self, name: str, where: Start, partitions: Collection[int] = ()) -> list[Trim]:
        """What would go if everything before `where` was deleted: of these partitions, each of which must be served,
        or of all."""
        topic = self.topic(name)
        for index in set(partitions) - {each.index for each in topic.partitions}:
            count = len(topic.partitions)
            raise ClientError(f"{name} has no partition {index}: it has {count}, numbered from 0")
        chosen = [each for each in topic.partitions if not partitions or each.index in partitions]
        for each in chosen if partitions else ():
            if each.offline is not None:
                raise ClientError(f"{name}-{each.index} is offline: {each.offline}", "`tidelog status` says what to do")
        served = [each for each in chosen if each.offline is None]
        by_time: dict[int, int] = {}
        if where.kind == "time":
            by_time = self._offsets(name, served, library.OffsetSpec.for_timestamp(where.value))
        plan = [Trim(each.index, 0, 0, 0, each.offline) for each in chosen if each.offline is not None]
        for each in served:
            start, end = each.start or 0, each.end or 0
            if where.kind == "offset" and where.value > end > start:
                raise ClientError(
                    f"{name}-{each.index} ends at offset {end}: nothing was deleted",
                    "--before end deletes all that is there, --partition chooses partitions",
                )
            at = by_time.get(each.index, -1)
            wanted = {
                "beginning": start,
                "end": end,
                "offset": where.value,
                "last": end - where.value,
                "time": end if at < 0 else at,
            }[where.kind]
            plan.append(Trim(each.index, start, end, min(max(wanted, start), end)))
        return plan

    def trim(self, name: str, plan: Iterable[Trim]) -> None:
        """Delete the records; their partitions start at the new offsets from now on."""
        asked = [TopicPartition(name, each.partition, each.new) for each in plan if each.records]
        for place, answer in self._client.delete_records(asked, request_timeout=REQUEST_TIMEOUT_S).items():
            try:
                self._wait(answer, f"delete records of {name}-{place.partition}")
            except ClientError as error:
                if "KAFKA_STORAGE_ERROR" not in error.message:
                    raise
                hint = (
                    "where the disk is full to the last byte, even noting the new start takes some KB: remove another "
                    "file first, then trim again; `tidelog status` shows the disk and partitions that are offline"
                )
                raise ClientError(error.message, hint) from None

    def sizes(self) -> dict[str, int] | None:
        """Bytes of each topic on all brokers together; None where they don't tell."""
        try:
            with connected(self._bootstrap, "ask for sizes") as cluster:
                return topic_bytes(cluster)
        except ClientError:
            return None

    def topics(self) -> list[Topic]:
        """Every topic with its partitions, by name."""
        metadata = self._metadata()
        return [self._topic(metadata[name]) for name in sorted(metadata)]

    def topic(self, name: str) -> Topic:
        """One topic with its partitions, their first and next offsets, and the configs that were set for it."""
        known = self._metadata()
        metadata = known.get(name)
        if metadata is None:
            raise unknown_topic(name, known)
        plain = self._topic(metadata)
        offline = self._offline(name)
        served = [partition for partition in plain.partitions if partition.index not in offline]
        starts = self._offsets(name, served, library.OffsetSpec.earliest())
        ends = self._offsets(name, served, library.OffsetSpec.latest())
        partitions = [
            replace(p, offline=offline.get(p.index), start=starts.get(p.index), end=ends.get(p.index))
            for p in plain.partitions
        ]
        return Topic(name, partitions, self._topic_id(name), self._configs(name))

    def _metadata(self) -> dict[str, Any]:
        """All topics: to ask for one by its name could make the broker create it."""
        try:
            return self._client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        except KafkaException as error:
            raise from_kafka(error, self._bootstrap, "list the topics") from None

    def _topic(self, metadata: Any) -> Topic:
        partitions = [
            Partition(p.id, p.leader, list(p.replicas), list(p.isrs))
            for p in sorted(metadata.partitions.values(), key=lambda p: p.id)
        ]
        return Topic(metadata.topic, partitions)

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

    def _offsets(self, topic: str, partitions: list[Partition], which: object) -> dict[int, int]:
        asked = {TopicPartition(topic, partition.index): which for partition in partitions}
        if not asked:
            return {}
        answers = self._client.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
        return {
            place.partition: self._wait(answer, f"ask for the offsets of {topic}").offset
            for place, answer in answers.items()
        }

    def _offline(self, name: str) -> dict[int, str]:
        """The partitions of the topic that can't be served, and why."""
        with connected(self._bootstrap, f"describe topic {name}") as cluster:
            offline = offline_partitions(cluster, [name])
        return {each.partition: each.why for each in offline}

    def _wait(self, answer: "Future[T]", doing: str) -> T:
        try:
            return answer.result(REQUEST_TIMEOUT_S * 2)
        except KafkaException as error:
            raise from_kafka(error, self._bootstrap, doing) from None
