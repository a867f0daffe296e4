"""Publishes the committed image to whoever registered: the end of the way of a decision.

Subscribers run on the loop, in the order in which they registered, each seeing the image that the one before saw. They
are told which partitions changed, so that one change of one of 10,000 costs them what that one costs.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TypeAlias

from tidelog.env.slices import Steps, whole
from tidelog.metadata.chunks import Chunked
from tidelog.metadata.image import EMPTY_IMAGE, TOPIC_RESOURCE, ClusterImage
from tidelog.wire.records.metadata import (
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)

_logger = logging.getLogger(__name__)

ChangedTopics: TypeAlias = Mapping[bytes, Set[int]]
"""The ids of topics that came, went or changed, each with the partitions that did; none where the topic went."""
Subscriber = Callable[[ClusterImage, ClusterImage, ChangedTopics, set[tuple[int, str]]], Steps[None] | None]
"""Called with the old image, the new one, the changed topics, and the (type, name) of changed configs.

It is done when it returns, or, where following the change may take long, when the steps that it returns are."""

RECORDS_A_STEP = 256


class Follower:
    """Holds the committed image. `image` is replaced, never changed."""

    __slots__ = ("_pending_configs", "_pending_topics", "_subscribers", "_under_way", "image")

    def __init__(self, image: ClusterImage = EMPTY_IMAGE) -> None:
        self.image = image.visible
        self._subscribers: list[Subscriber] = []
        self._pending_topics: dict[bytes, set[int]] = {}
        self._pending_configs: set[tuple[int, str]] = set()
        self._under_way: Steps[None] | None = None

    def subscribe(self, subscriber: Subscriber) -> None:
        """Be told of every change from now on; what is there already stands in `image`."""
        self._subscribers.append(subscriber)

    def publish(self, image: ClusterImage, records: Iterable[Record]) -> Steps[None]:
        """`image` is committed; `records` are what led to it from the image before.

        In steps, since a change may be one of thousands of topics: readers see all of it before the first subscriber
        hears of it. One publication follows the other: where the one before was left in its middle, it is ended first.
        """
        self._end_last()
        self._under_way = steps = self._publish(image, records)
        yield from steps
        if self._under_way is steps:
            self._under_way = None

    def _end_last(self) -> None:
        last, self._under_way = self._under_way, None
        if last is not None:
            try:
                whole(last)
            except Exception:
                _logger.exception("a change of the metadata could not be followed by all of the broker")

    def _publish(self, image: ClusterImage, records: Iterable[Record]) -> Steps[None]:
        old = self.image
        topics, configs = self._pending_topics, self._pending_configs
        for count, record in enumerate(records, 1):
            _note(record, old, topics, configs)
            if not count % RECORDS_A_STEP:
                yield
        if image.before_transaction is not None:  # seen when the transaction ends, with all it changed
            return
        self._pending_topics, self._pending_configs = {}, set()
        self.image = image
        yield from self._tell(old, topics, configs)

    def replace(self, image: ClusterImage) -> None:
        """Start over from an image that was loaded as a whole: everything may have changed."""
        self._end_last()
        self._pending_topics, self._pending_configs = {}, set()  # they are in the image, or came to nothing
        old, self.image = self.image, image.visible
        topics = {
            topic_id: _differing(old, self.image, topic_id)
            for topic_id in {**old.topics_by_id, **self.image.topics_by_id}
            if old.topics_by_id.get(topic_id) is not self.image.topics_by_id.get(topic_id)
        }
        configs = {*old.configs, *self.image.configs}
        whole(self._tell(old, topics, configs))

    def _tell(self, old: ClusterImage, topics: ChangedTopics, configs: set[tuple[int, str]]) -> Steps[None]:
        """All subscribers hear of it, also where one of them fails; what the first failed with is raised then."""
        image, failed = self.image, None
        for subscriber in self._subscribers:
            try:
                steps = subscriber(old, image, topics, configs)
                if steps is not None:
                    yield from steps
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed


def _differing(old: ClusterImage, new: ClusterImage, topic_id: bytes) -> set[int]:
    before, after = old.topics_by_id.get(topic_id), new.topics_by_id.get(topic_id)
    if after is None:
        return set()
    return set(after.partitions.differing(Chunked() if before is None else before.partitions))


def _note(record: Record, old: ClusterImage, topics: dict[bytes, set[int]], configs: set[tuple[int, str]]) -> None:
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        topics.setdefault(record.topic_id, set()).add(record.partition_id)
    elif isinstance(record, TopicRecord):
        topics.setdefault(record.topic_id, set())
    elif isinstance(record, ConfigRecord):
        configs.add((record.resource_type, record.resource_name))
    elif isinstance(record, RemoveTopicRecord):
        topics[record.topic_id] = set()
        removed = old.topics_by_id.get(record.topic_id)
        if removed is not None and (TOPIC_RESOURCE, removed.name) in old.configs:
            configs.add((TOPIC_RESOURCE, removed.name))
    elif isinstance(record, ClearElrRecord):
        named = old.topics.get(record.topic_name)
        cleared = [named] if named is not None else [] if record.topic_name else old.topics_by_id.values()
        for topic in cleared:
            topics.setdefault(topic.id, set()).update(
                index for index, partition in enumerate(topic.partitions) if partition.elr or partition.last_known_elr
            )
