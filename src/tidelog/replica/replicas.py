"""The partitions of this broker: made when first asked for, kept in step with the metadata image."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tidelog.replica.partition import Partition
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.env import Loop
    from tidelog.log.store import Store
    from tidelog.metadata.follow import Follower
    from tidelog.metadata.image import ClusterImage, TopicImage

log = logging.getLogger("tidelog.replica")

OPENED_TOGETHER = 2
OPEN_PAUSE_S = 0.01
TOPIC_RESOURCE = 2  # Kafka's id of the resource type in config records
BROKER_RESOURCE = 4


class Replicas:
    """A partition that nobody asked for costs nothing: 100,000 idle ones are entries of the image, not objects here."""

    def __init__(
        self, node_id: int, loop: Loop, store: Store, metadata: Follower, topic_config: Callable[[str], TopicConfig]
    ) -> None:
        self._node_id = node_id
        self._loop = loop
        self._store = store
        self._metadata = metadata
        self._topic_config = topic_config
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._configs: dict[str, TopicConfig] = {}
        self._awake: list[Partition] = []
        self.forget: list[Callable[[], None]] = []  # called when a partition may have changed or gone: caches hang here
        metadata.subscribe(self._image_changed)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def get(self, topic: str, index: int) -> Partition:
        """The partition under this name. Raises UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER if elsewhere."""
        found = self._partitions.get((topic, index))
        if found is not None:
            return found
        image = self._metadata.image.topics.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._open(image, index)

    def by_id(self, topic_id: bytes, index: int) -> Partition:
        """The partition of the topic with this id. Raises UNKNOWN_TOPIC_ID where no topic has it."""
        image = self._metadata.image.topics_by_id.get(topic_id)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.get(image.name, index)

    def opened(self, key: tuple[str | bytes, int]) -> Partition | None:
        """The partition under the name or id of its topic, if it was asked for before; cheap, and never raises."""
        topic, index = key
        if isinstance(topic, bytes):
            image = self._metadata.image.topics_by_id.get(topic)
            if image is None:
                return None
            topic = image.name
        return self._partitions.get((topic, index))

    def config(self, topic: str) -> TopicConfig:
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = self._topic_config(topic)
        return config

    def _open(self, topic: TopicImage, index: int) -> Partition:
        image = topic.partitions[index]
        if self._node_id not in image.replicas:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        stored = self._store.log(topic.name, index, topic.id, self.config(topic.name))
        partition = self._partitions[topic.name, index] = Partition(
            topic.name,
            topic.id,
            index,
            image,
            stored,
            node_id=self._node_id,
            commit=self._store.commit,
            wake_later=self._wake_later,
        )
        return partition

    # -- what was on disk at the start

    def put_strays_aside(self) -> None:
        """Folders that no topic has: of one deleted in the moment of a crash, or of a wrong backup."""
        topics = self._metadata.image.topics
        for topic, index in self._store.found():
            if topic not in topics or index >= len(topics[topic].partitions):
                self._store.put_aside(topic, index)

    def open_found(self) -> None:
        """Open, a few at a time, what is on disk and nobody asked for yet, so that retention and scrub reach it."""
        found = self._store.found()
        for topic, index in found[:OPENED_TOGETHER]:
            try:
                self.get(topic, index)
            except (KafkaError, OSError) as error:
                log.warning("can't open %s-%d: %s", topic, index, error)
        if len(self._store.found()) < len(found):
            self._loop.call_later(OPEN_PAUSE_S, self.open_found)

    # -- waking: once a turn of the loop, however many batches came in it

    def _wake_later(self, partition: Partition) -> None:
        if not self._awake:
            self._loop.call_soon(self._wake_behind)
        self._awake.append(partition)

    def _wake_behind(self) -> None:
        """Behind the answers to those who wrote."""
        self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        awake, self._awake = self._awake, []
        for partition in dict.fromkeys(awake):
            partition.wake_fetches()

    # -- following the image

    def _image_changed(
        self,
        old: ClusterImage,
        new: ClusterImage,
        changed_topics: set[bytes],
        changed_configs: set[tuple[int, str]],
    ) -> None:
        if changed_topics or changed_configs:
            for forget in self.forget:
                forget()
        if changed_configs:
            self._configs_changed(changed_configs)
        for topic_id in changed_topics:
            before, after = old.topics_by_id.get(topic_id), new.topics_by_id.get(topic_id)
            if before is not None:
                self._topic_changed(before, after)

    def _topic_changed(self, before: TopicImage, after: TopicImage | None) -> None:
        if after is None:
            self._configs.pop(before.name, None)
        for index in range(len(before.partitions)):
            partition = self._partitions.get((before.name, index))
            if partition is not None and partition.topic_id != before.id:
                continue
            if after is None:
                if partition is not None:
                    del self._partitions[before.name, index]
                    partition.delete()
                self._store.delete(before.name, index, before.id)
            elif partition is not None:
                try:
                    partition.follow_image(after.partitions[index])
                except Exception as error:  # the others follow all the same
                    log.exception("%s-%d can't follow the controller", before.name, index)
                    partition.log.go_offline(f"its leader epochs can't be read: {error}")

    def _configs_changed(self, changed: set[tuple[int, str]]) -> None:
        if any(kind == BROKER_RESOURCE for kind, _ in changed):
            self._configs.clear()
            stale = set(self._partitions)
        else:
            names = {name for kind, name in changed if kind == TOPIC_RESOURCE}
            for name in names:
                self._configs.pop(name, None)
            stale = {key for key in self._partitions if key[0] in names}
        for key in stale:
            if key[0] in self._metadata.image.topics:
                partition = self._partitions[key]
                partition.log.configure(self.config(key[0]))
                partition.advance()

    def check_invariants(self) -> None:
        for partition in self._partitions.values():
            partition.check_invariants()
