"""The topics of a consumer group: what subscriptions name, as ids, and the hash by which a change is noticed."""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from struct import pack

from tidelog.coordinator.group.consumer.state import Resolved, Subscription
from tidelog.coordinator.group.consumer.xxh3 import xxh3_64
from tidelog.env.slices import Steps
from tidelog.metadata.image import ClusterImage, TopicImage

_HASH_VERSION = b"\0"
_HASHES_MAX = 131_072
"""Topics whose hash is remembered; of those beyond, it is computed again whenever topics change."""


def names_of(subscription: Subscription, resolved: Mapping[str, Resolved]) -> Collection[str]:
    """The topics that it names; an expression that wasn't resolved names none."""
    matches = resolved.get(subscription.regex) if subscription.regex else None
    if matches is None:
        return subscription.names
    return matches.topics.union(subscription.names) if subscription.names else matches.topics


def ids_of(subscription: Subscription, resolved: Mapping[str, Resolved], image: ClusterImage) -> set[bytes]:
    """Of its topics that exist."""
    topics = image.topics
    return {topics[name].id for name in names_of(subscription, resolved) if name in topics}


def group_hash(subscriptions: Iterable[Subscription], resolved: Mapping[str, Resolved], image: ClusterImage) -> int:
    """As Kafka computes it: of the hashes of the topics that exist, in the order of their names; 0 without any."""
    names: set[str] = set()
    for subscription in subscriptions:
        names.update(names_of(subscription, resolved))
    hashes = [_topic_hash(image.topics[name], image) for name in sorted(names & image.topics.keys())]
    return _signed(xxh3_64(pack(f"<{len(hashes)}q", *hashes))) if hashes else 0


def hash_topics(
    subscriptions: Iterable[Subscription], resolved: Mapping[str, Resolved], image: ClusterImage
) -> Steps[None]:
    """Ahead of `group_hash`: what is remembered by it costs that a tenth."""
    names: set[str] = set()
    for subscription in subscriptions:
        names.update(names_of(subscription, resolved))
        yield
    for name in names:
        topic = image.topics.get(name)
        if topic is not None:
            _topic_hash(topic, image)
        yield


def _topic_hash(topic: TopicImage, image: ClusterImage) -> int:
    racks = {broker.id: broker.rack for broker in image.brokers.values() if broker.rack is not None}
    if not racks:
        return _hash(topic.id, topic.name, len(topic.partitions), ())
    of_partitions = tuple(
        tuple(sorted(racks[replica] for replica in partition.replicas if replica in racks))
        for partition in topic.partitions
    )
    return _hash(topic.id, topic.name, len(topic.partitions), of_partitions)


@lru_cache(_HASHES_MAX)
def _hash(topic_id: bytes, name: str, count: int, racks: tuple[tuple[str, ...], ...]) -> int:
    parts = [_HASH_VERSION, topic_id[7::-1], topic_id[:7:-1], _text(name), pack("<i", count)]
    for partition in range(count):
        parts.append(pack("<i", partition))
        if racks:
            parts += [pack("<i", len(rack)) + _text(rack) for rack in racks[partition]]
    return _signed(xxh3_64(b"".join(parts)))


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + pack("<i", len(units) // 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
