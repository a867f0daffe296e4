"""What consumers of the classic protocol say to each other inside JoinGroup and SyncGroup: subscription, assignment.

Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment: a version, then fields of which newer versions only
add some, so a version that isn't known is read as the newest that is.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.coordinator.bounds import SUBSCRIBED_NAMES_MAX
from tidelog.coordinator.group.consumer.state import Partitions
from tidelog.metadata.image import ClusterImage
from tidelog.wire.codec import decoder, encoder, i32, message, wire
from tidelog.wire.codec import struct as part
from tidelog.wire.errors import MalformedError
from tidelog.wire.messages.consumer_group_heartbeat import TopicPartitions

NEWEST = 3
_VERSION = struct.Struct(">h")
_TOPICS = struct.Struct(">hi")  # the version, how many topics


@part
class TopicPartition:
    topic: str = ""
    partitions: list[i32] = wire(factory=list)


@message(key=-1, versions="0-3", flexible="none")
class SubscriptionData:
    topics: list[str] = wire(factory=list)
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = wire("1+", factory=list, ignorable=True)
    generation_id: i32 = wire("2+", default=-1, ignorable=True)
    rack_id: str | None = wire("3+", default=None, ignorable=True)


@message(key=-1, versions="0-3", flexible="none")
class AssignmentData:
    assigned_partitions: list[TopicPartition] = wire(factory=list)
    user_data: bytes | None = None


class Said(NamedTuple):
    """A member's subscription."""

    topics: tuple[str, ...]
    owned: list[TopicPartition]
    rack_id: str | None


def version_of(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise MalformedError("an embedded message of the consumer protocol is too short for its version")
    version = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedError(f"an embedded message of the consumer protocol has version {version}")
    return min(version, NEWEST)


def read_subscription(data: bytes) -> Said:
    """MalformedError where it isn't one."""
    version = version_of(data)
    if len(data) >= _TOPICS.size and _TOPICS.unpack_from(data)[1] > SUBSCRIBED_NAMES_MAX:
        raise MalformedError(f"an embedded subscription of more than {SUBSCRIBED_NAMES_MAX} topics")
    subscription, _ = decoder(SubscriptionData, version)(data, _VERSION.size)
    return Said(tuple(sorted(set(subscription.topics))), subscription.owned_partitions, subscription.rack_id or None)


def read_assignment(data: bytes) -> AssignmentData:
    assignment, _ = decoder(AssignmentData, version_of(data))(data, _VERSION.size)
    return assignment


def write_assignment(partitions: Mapping[bytes, Sequence[int]], version: int, image: ClusterImage) -> bytes:
    """Of topics that exist; by name, as the classic protocol knows them."""
    listed = [
        TopicPartition(topic=image.topics_by_id[topic].name, partitions=sorted(indexes))
        for topic, indexes in partitions.items()
        if topic in image.topics_by_id
    ]
    return _VERSION.pack(version) + encoder(AssignmentData, version)(AssignmentData(assigned_partitions=listed))


def partitions_by_id(listed: Sequence[TopicPartition], image: ClusterImage) -> Partitions:
    """By topic id; of topics that exist."""
    by_id: dict[bytes, tuple[int, ...]] = {}
    for one in listed:
        topic = image.topics.get(one.topic)
        if topic is not None and one.partitions:
            by_id[topic.id] = tuple(sorted(set(one.partitions)))
    return by_id


def as_owned(listed: Sequence[TopicPartition], image: ClusterImage) -> list[TopicPartitions]:
    """As a member of the new protocol would say what it uses."""
    by_id = partitions_by_id(listed, image)
    return [TopicPartitions(topic_id=topic, partitions=list(indexes)) for topic, indexes in by_id.items()]
