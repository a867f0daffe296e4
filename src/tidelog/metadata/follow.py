"""Publishes the committed image to whoever registered: the end of the way of a decision.

Subscribers run on the loop, in the order in which they registered, each seeing the image that the one before saw.
"""

from collections.abc import Callable, Iterable

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

Subscriber = Callable[[ClusterImage, ClusterImage, set[bytes], set[tuple[int, str]]], None]
"""Called with the old image, the new one, the ids of changed topics, and the (type, name) of changed configs."""


class Follower:
    """Holds the committed image. `image` is replaced, never changed."""

    __slots__ = ("_pending_configs", "_pending_topics", "_subscribers", "image")

    def __init__(self, image: ClusterImage = EMPTY_IMAGE) -> None:
        self.image = image.visible
        self._subscribers: list[Subscriber] = []
        self._pending_topics: set[bytes] = set()
        self._pending_configs: set[tuple[int, str]] = set()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Be told of every change from now on; what is there already stands in `image`."""
        self._subscribers.append(subscriber)

    def publish(self, image: ClusterImage, records: Iterable[Record]) -> None:
        """`image` is committed; `records` are what led to it from the image before."""
        old = self.image
        topics, configs = self._pending_topics, self._pending_configs
        for record in records:
            _note(record, old, topics, configs)
        if image.before_transaction is not None:  # seen when the transaction ends, with all it changed
            return
        self._pending_topics, self._pending_configs = set(), set()
        self.image = image
        for subscriber in self._subscribers:
            subscriber(old, image, topics, configs)

    def replace(self, image: ClusterImage) -> None:
        """Start over from an image that was loaded as a whole: everything may have changed."""
        old, self.image = self.image, image.visible
        topics = {*old.topics_by_id, *self.image.topics_by_id}
        configs = {*old.configs, *self.image.configs}
        for subscriber in self._subscribers:
            subscriber(old, self.image, set(topics), set(configs))


def _note(record: Record, old: ClusterImage, topics: set[bytes], configs: set[tuple[int, str]]) -> None:
    if isinstance(record, PartitionRecord | PartitionChangeRecord | TopicRecord):
        topics.add(record.topic_id)
    elif isinstance(record, ConfigRecord):
        configs.add((record.resource_type, record.resource_name))
    elif isinstance(record, RemoveTopicRecord):
        topics.add(record.topic_id)
        removed = old.topics_by_id.get(record.topic_id)
        if removed is not None and (TOPIC_RESOURCE, removed.name) in old.configs:
            configs.add((TOPIC_RESOURCE, removed.name))
    elif isinstance(record, ClearElrRecord):
        named = old.topics.get(record.topic_name)
        topics.update([named.id] if named is not None else [] if record.topic_name else old.topics_by_id)
