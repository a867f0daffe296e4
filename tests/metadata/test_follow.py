"""Who is told of what."""

from tests.metadata.images import TOPIC_ID, broker, image_of, topic
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.metadata.follow import ChangedTopics, Follower
from tidelog.metadata.image import ClusterImage
from tidelog.wire.records.cluster import BeginTransactionRecord, ConfigRecord, EndTransactionRecord
from tidelog.wire.records.metadata import Record
from tidelog.wire.records.topics import PartitionChangeRecord, RemoveTopicRecord

OTHER_ID = b"another topic id"


class Told:
    def __init__(self, follower: Follower) -> None:
        self.calls: list[tuple[ClusterImage, ClusterImage, ChangedTopics, set[tuple[int, str]]]] = []
        follower.subscribe(lambda *call: self.calls.append(call))


def publish(follower: Follower, image: ClusterImage, *records: Record) -> ClusterImage:
    new = fold(image, records, image.offset + len(records), 1, 0)
    whole(follower.publish(new, records))
    return new


def test_subscriber_hears_what_changed() -> None:
    image = image_of(broker(), *topic())
    follower = Follower(image)
    told = Told(follower)
    new = publish(
        follower,
        image,
        *topic("u", OTHER_ID),
        ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1),
    )
    assert told.calls == [(image, new, {TOPIC_ID: {0}, OTHER_ID: {0}}, {(2, "t")})]
    assert follower.image is new


def test_deleted_topic_tells_of_its_configs_too() -> None:
    image = image_of(broker(), *topic(), ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"))
    follower = Follower(image)
    told = Told(follower)
    new = publish(follower, image, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert told.calls == [(image, new, {TOPIC_ID: set()}, {(2, "t")})]


def test_transaction_is_told_when_it_ends() -> None:
    image = image_of(broker())
    follower = Follower(image)
    told = Told(follower)
    opened = publish(follower, image, BeginTransactionRecord(), *topic())
    assert told.calls == []
    assert follower.image is image
    ended = publish(follower, opened, *topic("u", OTHER_ID), EndTransactionRecord())
    assert told.calls == [(image, ended, {TOPIC_ID: {0}, OTHER_ID: {0}}, set())]


def test_whole_new_image_may_have_changed_everything() -> None:
    image = image_of(broker(), *topic())
    follower = Follower(image)
    told = Told(follower)
    new = image_of(broker(), *topic("u", OTHER_ID))
    follower.replace(new)
    assert told.calls == [(image, new, {TOPIC_ID: set(), OTHER_ID: {0}}, set())]


def test_one_changed_partition_of_many_is_told_alone() -> None:
    image = image_of(broker(), *topic(partitions=10_000))
    follower = Follower(image)
    told = Told(follower)
    new = publish(follower, image, PartitionChangeRecord(partition_id=7000, topic_id=TOPIC_ID, leader=1))
    assert told.calls == [(image, new, {TOPIC_ID: {7000}}, set())]


def test_whole_new_image_tells_of_partitions_that_differ_from_the_old_one() -> None:
    """As a follower gets it that was far behind, and loads a snapshot."""
    image = image_of(broker(), *topic(partitions=1000), *topic("u", OTHER_ID))
    follower = Follower(image)
    told = Told(follower)
    change = PartitionChangeRecord(partition_id=700, topic_id=TOPIC_ID, leader=1)
    new = image_of(broker(), *topic(partitions=1001), *topic("u", OTHER_ID), change)
    follower.replace(new)
    assert told.calls == [(image, new, {TOPIC_ID: {700, 1000}, OTHER_ID: set()}, set())]
