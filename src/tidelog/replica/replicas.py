"""The partitions of this broker: made when first asked for, kept in step with the metadata image."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tidelog.env.promise import Promise, gather
from tidelog.replica.partition import Partition
from tidelog.replica.resends import Resends
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.topic_partition import AnyTopicPartition, TopicPartition

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.env import Loop
    from tidelog.env.slices import Steps
    from tidelog.log.store import Store
    from tidelog.metadata.follow import ChangedTopics, Follower
    from tidelog.metadata.image import ClusterImage, TopicImage
    from tidelog.replica.directories import Directories
    from tidelog.replica.in_sync import InSync

log = logging.getLogger("tidelog.replica")

OPENED_TOGETHER = 2
OPEN_PAUSE_S = 0.01
"""What nobody asked for is opened a few at a time, with pauses: clients come first."""
OPEN_AGAIN_S = 5.0
"""After this those are tried again that couldn't be opened, for want of descriptors."""
LOOKS_A_STEP = 256
UNKNOWN_MAX = 1000
UNKNOWN_PRODUCERS_MAX = 100
"""Partitions that no topic has yet, and producers of each, of which it is remembered which batches will come again."""
TOPIC_RESOURCE = 2  # Kafka's id of the resource type in config records
BROKER_RESOURCE = 4


class NotOpenYet(KafkaError):
    """The log of a partition that is led here is being opened, off the loop. `opened` is settled when to ask again.

    Whoever can't wait for that is told what Kafka says of a partition that its leader hasn't taken over yet.
    """

    def __init__(self, topic: str, index: int, opened: Promise[None]) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log of {topic}-{index} is being opened: try again")
        self.topic = topic
        self.index = index
        self.opened = opened


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
        self._partitions: dict[TopicPartition, Partition] = {}
        self._opening: dict[TopicPartition, Promise[None]] = {}
        self._asker: object = None  # who asks for the logs that are to be opened now
        self._resends: dict[TopicPartition, Resends] = {}  # of partitions whose logs aren't open yet
        self._unknown: dict[AnyTopicPartition, Resends] = {}  # of partitions that aren't known here yet
        self._configs: dict[str, TopicConfig] = {}
        self._awake: list[Partition] = []
        self._removes = False  # a start hears of old changes again: what was removed then may be a replica again
        self.in_sync: InSync | None = None
        """Has the ISR changed of those that are led here."""
        self.directories: Directories | None = None
        """Tells the controller where logs are, and which ones failed."""
        self.forget: list[Callable[[], None]] = []  # called when a partition may have changed or gone: caches hang here
        metadata.subscribe(self._image_changed)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def get(self, topic: str, index: int) -> Partition:
        """The partition under this name. Raises UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER if elsewhere.

        Where its log is on disk and wasn't opened since the start, that begins now, and NotOpenYet is raised.
        """
        partition = self._partitions.get((topic, index))
        if partition is not None:
            return partition
        image = self._metadata.image.topics.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._open(image, index)

    def at(self, place: AnyTopicPartition) -> Partition:
        """The partition under the name or id of its topic; raises as `get` and `by_id` do."""
        topic, index = place
        return self.by_id(topic, index) if isinstance(topic, bytes) else self.get(topic, index)

    def by_id(self, topic_id: bytes, index: int, asker: object = None) -> Partition:
        """The partition of the topic with this id. Raises UNKNOWN_TOPIC_ID where no topic has it.

        `asker`: as in `open`.
        """
        image = self._metadata.image.topics_by_id.get(topic_id)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        before, self._asker = self._asker, asker or self._asker
        try:
            return self.get(image.name, index)
        finally:
            self._asker = before

    @property
    def all_open(self) -> bool:
        """Whether `get` never raises NotOpenYet."""
        return self._store.all_open

    def open(self, places: Iterable[tuple[str | bytes, int]], asker: object = None) -> Promise[None] | None:
        """Open the logs of these partitions; settled when that was tried with each of them. None: they are open.

        Many who ask have their logs opened in turn: `asker` is who does, where they ask several times.
        """
        waiting: dict[Promise[None], None] = {}
        self._asker = object() if asker is None else asker
        for topic, index in places:
            if (topic, index) in self._partitions:
                continue
            try:
                self.at((topic, index))
            except NotOpenYet as not_yet:
                waiting[not_yet.opened] = None
            except KafkaError:  # whoever asked for it is told so
                continue
        self._asker = None
        return gather(list(waiting)).map(lambda _: None) if waiting else None

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
        config = self.config(topic.name)
        if self._store.waits(topic.name, index, config):
            raise NotOpenYet(topic.name, index, self._open_log(topic, index, config))
        stored = self._store.log(topic.name, index, topic.id, config)
        if stored.config is not config:  # it was changed while the log was opened
            stored.configure(config)
        partition = self._partitions[topic.name, index] = Partition(
            topic.name,
            topic.id,
            index,
            image,
            stored,
            node_id=self._node_id,
            commit=self._store.commit,
            wake_later=self._wake_later,
            in_sync=self.in_sync,
            resends=self._take_resends(topic, index),
            high_watermark=self._store.high_watermarks.known(stored),
        )
        self._look_where((topic.name, index))
        return partition

    def _look_where(self, key: TopicPartition) -> None:
        if self.directories is not None:
            self.directories.look(key)

    def expect_again(self, place: AnyTopicPartition, records: memoryview, now_ms: int) -> None:
        """A producer's batch came before the partition was known here, or its log open, and will be sent again: as
        `Partition.expect_again`."""
        topic, index = place
        image = self._metadata.image
        known = image.topics_by_id.get(topic) if isinstance(topic, bytes) else image.topics.get(topic)
        if known is not None and 0 <= index < len(known.partitions):
            resends = self._resends.setdefault((known.name, index), Resends())
        else:  # whoever asks may have made it up
            resends = self._unknown.pop(place, None) or Resends()
            if len(resends) >= UNKNOWN_PRODUCERS_MAX:
                resends = Resends()
            if len(self._unknown) >= UNKNOWN_MAX:
                del self._unknown[next(iter(self._unknown))]
            self._unknown[place] = resends
        resends.refuse_sound(records, 0, len(records), now_ms)

    @property
    def unknown_expected_again(self) -> int:
        """Of how many partitions that no topic has yet it is remembered that batches come again."""
        return len(self._unknown)

    def _take_resends(self, topic: TopicImage, index: int) -> Resends | None:
        by_id = self._unknown.pop((topic.id, index), None)
        by_name = self._unknown.pop((topic.name, index), None)
        return self._resends.pop((topic.name, index), None) or by_name or by_id or None

    def _open_log(self, topic: TopicImage, index: int, config: TopicConfig) -> Promise[None]:
        opened = self._opening.get((topic.name, index))
        if opened is None:
            opened = self._opening[topic.name, index] = self._store.open(
                topic.name, index, topic.id, config, self._asker
            )
            opened.on_done(partial(self._log_opened, topic.name, index))
        else:
            self._store.also_wants(topic.name, index, self._asker)
        return opened

    def _log_opened(self, topic: str, index: int, opened: Promise[None]) -> None:
        del self._opening[topic, index]
        if opened.error is None:
            with suppress(KafkaError):  # deleted meanwhile, or led elsewhere
                self.get(topic, index)

    # -- what was on disk at the start

    def put_strays_aside(self) -> None:
        """Folders of which this broker is to have no replica: of a topic deleted, or a partition reassigned, in the
        moment of a crash or while the broker was stopped, or of a wrong backup. From now on what is reassigned goes.

        Raises FolderError where a partition is in two data folders that can't be told apart.
        """
        image, topics = self._metadata.image, self._metadata.image.topics
        for topic, index in self._store.unopened():
            partition = image.partition(topic, index)
            if partition is None or self._node_id not in partition.replicas:
                self._store.put_stray_aside(topic, index)
        self._removes = True
        for topic, index in self._store.found_twice():
            self._store.choose_folder(topic, index, topics[topic].id)

    def open_found(self) -> None:
        """Open, a few at a time, what is on disk and nobody asked for yet, so that retention and scrub reach it."""
        self._open_next(iter(self._store.unopened()))

    def _open_next(self, left: Iterator[TopicPartition], *, failed: bool = False) -> None:
        """`failed`: some couldn't be opened for a reason that may pass."""
        waiting: list[Promise[None]] = []
        for topic, index in left:
            try:
                self.get(topic, index)
            except NotOpenYet as not_yet:
                waiting.append(not_yet.opened)
            except (KafkaError, OSError) as error:
                log.warning("can't open %s-%d: %s", topic, index, error)
            if len(waiting) == OPENED_TOGETHER:
                break

        def pause(_: object) -> None:
            more_failed = failed or any(opened.error is not None for opened in waiting)
            self._loop.call_later(OPEN_PAUSE_S, partial(self._open_next, left, failed=more_failed))

        if waiting:
            gather(waiting).on_done(pause)
        elif failed:
            self._loop.call_later(OPEN_AGAIN_S, self.open_found)
        else:
            self._store.recoveries.finish(len(self._store.offline))

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
        changed_topics: ChangedTopics,
        changed_configs: set[tuple[int, str]],
    ) -> Steps[None]:
        """In steps: a change may be one of thousands of partitions. What is gone isn't found from the first one on."""
        gone: list[tuple[TopicImage, dict[int, Partition]]] = []
        for topic_id in changed_topics:
            before = old.topics_by_id.get(topic_id)
            if before is not None and topic_id not in new.topics_by_id:
                gone.append((before, self._take(before)))
        if changed_topics or changed_configs:
            for forget in self.forget:
                forget()
        if changed_configs:
            yield from self._configs_changed(changed_configs)
        for topic, partitions in gone:
            yield from self._topic_gone(topic, partitions)
        for topic_id, indexes in changed_topics.items():
            before, after = old.topics_by_id.get(topic_id), new.topics_by_id.get(topic_id)
            if before is not None and after is not None:
                yield from self._topic_changed(before, after, indexes)

    def _take(self, topic: TopicImage) -> dict[int, Partition]:
        """The partitions of a deleted topic that were asked for; from now on nobody finds them here."""
        self._configs.pop(topic.name, None)
        taken: dict[int, Partition] = {}
        for index in range(len(topic.partitions)):
            self._resends.pop((topic.name, index), None)
            partition = self._partitions.get((topic.name, index))
            if partition is not None and partition.topic_id == topic.id:
                taken[index] = self._partitions.pop((topic.name, index))
        return taken

    def _topic_gone(self, topic: TopicImage, partitions: dict[int, Partition]) -> Steps[None]:
        for index in range(len(topic.partitions)):
            partition = partitions.get(index)
            if partition is not None:
                partition.delete()
            if partition is not None or (topic.name, index) not in self._partitions:
                self._store.delete(topic.name, index, topic.id)
            yield

    def _topic_changed(self, before: TopicImage, after: TopicImage, indexes: Set[int]) -> Steps[None]:
        removed: list[TopicPartition] = []
        for count, index in enumerate(sorted(indexes), 1):
            if not count % LOOKS_A_STEP:
                yield
            key = before.name, index
            if self._is_removed(before, after, index):
                removed.append(key)
                continue
            partition = self._partitions.get(key)
            if partition is None or partition.topic_id != before.id:
                continue
            try:
                partition.follow_image(after.partitions[index])
            except Exception as error:  # the others follow all the same
                log.exception("%s-%d can't follow the controller", before.name, index)
                partition.log.go_offline(f"its leader epochs can't be read: {error}")
            self._look_where(key)
            yield
        if removed:
            yield from self._remove(before.id, removed)

    # -- replicas that are no more: the partition is reassigned

    def _is_removed(self, before: TopicImage, after: TopicImage, index: int) -> bool:
        """Whether this broker was a replica, and is none any more."""
        if not self._removes or index >= len(before.partitions):
            return False
        node_id = self._node_id
        return node_id in before.partitions[index].replicas and node_id not in after.partitions[index].replicas

    def _remove(self, topic_id: bytes, removed: list[TopicPartition]) -> Steps[None]:
        """Their files go, as a deleted topic's do. What a journal has of them is void first: should this broker become
        a replica again, of the same topic, none of it may come back."""
        self._store.journals.removed(removed)
        for key in removed:
            log.info("%s-%d was reassigned, and this broker has no replica of it any more: its files go", *key)
            self._resends.pop(key, None)
            partition = self._partitions.pop(key, None)
            if partition is not None:
                partition.remove()
            self._store.delete(*key, topic_id)
            yield
        for forget in self.forget:
            forget()

    def _configs_changed(self, changed: set[tuple[int, str]]) -> Steps[None]:
        topics = self._metadata.image.topics
        if any(kind == BROKER_RESOURCE for kind, _ in changed):
            self._configs.clear()
            stale = list(self._partitions)
        else:
            names = [name for kind, name in changed if kind == TOPIC_RESOURCE]
            for name in names:
                self._configs.pop(name, None)
            stale = [(name, index) for name in names if name in topics for index in range(len(topics[name].partitions))]
        for key in stale:
            partition = self._partitions.get(key)
            if partition is not None and key[0] in topics:
                partition.log.configure(self.config(key[0]))
                partition.advance()
                yield

    def check_invariants(self) -> None:
        for partition in self._partitions.values():
            partition.check_invariants()
