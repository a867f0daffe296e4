"""Folding records into an image."""

import tracemalloc

import pytest

from tests.metadata.images import DIRECTORY, TOPIC_ID, broker, image_of, partition, topic
from tidelog.metadata.apply import ImageBuilder, ImageError, fold
from tidelog.metadata.image import EMPTY_IMAGE, ClusterImage, PartitionImage
from tidelog.metadata.records import image_records
from tidelog.metadata.versions import DEFAULT_LEVELS, record_version
from tidelog.wire.records.cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from tidelog.wire.records.metadata import Record, decode_record, encode_record
from tidelog.wire.records.nodes import (
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from tidelog.wire.records.security import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
)
from tidelog.wire.records.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


def after(image: ClusterImage, *records: Record) -> ClusterImage:
    changed = fold(image, records, image.offset + len(records), image.epoch, image.timestamp_ms)
    changed.check_invariants()
    return changed


def test_topic_with_its_partitions() -> None:
    image = image_of(broker(), *topic(partitions=2))
    assert image.topics["t"] is image.topics_by_id[TOPIC_ID]
    assert list(image.topics["t"].partitions) == [PartitionImage((1,), (1,), 1, 0, 0, (DIRECTORY,))] * 2
    assert image.partition("t", 1) is image.partition("t", 0), "equal partitions are one object"
    assert image.partition("t", 2) is None
    assert image.partition("u", 0) is None


def test_old_image_stays_as_it_was() -> None:
    old = image_of(broker(), *topic())
    new = after(
        old, *topic("u", b"another topic id"), ConfigRecord(resource_type=2, resource_name="t", name="a", value="1")
    )
    assert set(old.topics) == {"t"}
    assert set(new.topics) == {"t", "u"}
    assert new.topics["t"] is old.topics["t"]
    assert (old.configs, new.configs) == ({}, {(2, "t"): {"a": "1"}})
    assert new.brokers is old.brokers, "what no record touched is shared"


def test_partition_change_names_a_leader_and_opens_an_epoch() -> None:
    image = image_of(broker(), *topic(partitions=2))
    image = after(
        image, PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1])
    )
    assert image.partition("t", 1) == PartitionImage((1,), (), -1, 1, 1, (DIRECTORY,), elr=(1,))
    image = after(image, PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader_recovery_state=1))
    assert image.partition("t", 1) == PartitionImage(
        (1,), (), -1, 1, 2, (DIRECTORY,), elr=(1,), leader_recovery_state=1
    )


def test_removed_topic_takes_its_configs_along() -> None:
    image = image_of(broker(), *topic(), ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"))
    image = after(image, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert (image.topics, image.topics_by_id, image.configs) == ({}, {}, {})
    image = after(image, *topic(id=b"its id this time"))
    assert image.topics["t"].id == b"its id this time"


def test_names_with_dots_and_underscores_are_known_by_what_metrics_make_of_them() -> None:
    image = image_of(broker(), *topic("a.b", TOPIC_ID), *topic("plain", b"another topic id"))
    assert image.unified_names == {"a_b": ("a.b",)}
    both = after(image, *topic("a_b", b"a third topic id"))  # as an older Kafka may have let through
    assert both.unified_names == {"a_b": ("a.b", "a_b")}
    one = after(both, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert one.unified_names == {"a_b": ("a_b",)}
    assert after(one, RemoveTopicRecord(topic_id=b"a third topic id")).unified_names == {}
    assert image.unified_names == {"a_b": ("a.b",)}, "the old image is as it was"


def test_settings_of_one_resource_change_together_and_the_old_image_keeps_its_own() -> None:
    def put(name: str, value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)

    image = image_of(broker(), *topic(), put("a", "1"), put("b", "2"))
    new = after(image, put("a", None), put("c", "3"), put("b", None), put("b", "4"))
    assert new.topic_config("t") == {"c": "3", "b": "4"}
    assert image.topic_config("t") == {"a": "1", "b": "2"}
    gone = after(new, RemoveTopicRecord(topic_id=TOPIC_ID), *topic("t", b"another topic id"), put("d", "5"))
    assert gone.topic_config("t") == {"d": "5"}


def test_config_without_value_is_gone() -> None:
    set_ = ConfigRecord(resource_type=4, resource_name="", name="a", value="1")
    unset = ConfigRecord(resource_type=4, resource_name="", name="a", value=None)
    assert after(image_of(set_), unset).configs == {}


def test_broker_is_unfenced_and_shut_down_by_changes_of_its_registration() -> None:
    image = image_of(broker(fenced=True))
    image = after(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, fenced=-1, cordoned_log_dirs=[]))
    assert image.brokers[1].active
    assert image.brokers[1].cordoned_log_dirs == ()
    image = after(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, in_controlled_shutdown=1))
    assert not image.brokers[1].active
    image = after(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=6))
    assert image.brokers == {}


def test_feature_at_level_zero_is_none() -> None:
    image = image_of()
    assert image.features == DEFAULT_LEVELS
    assert "group.version" not in after(image, FeatureLevelRecord(name="group.version", feature_level=0)).features


def test_transaction_shows_all_of_itself_or_nothing() -> None:
    image = image_of(broker())
    open_image = after(image, BeginTransactionRecord(name="x"), *topic())
    assert open_image.visible.topics == {}
    assert set(open_image.topics) == {"t"}
    ended = after(open_image, *topic("u", b"another topic id"), EndTransactionRecord())
    assert ended.visible is ended
    assert set(ended.topics) == {"t", "u"}
    aborted = after(open_image, AbortTransactionRecord(reason="test"), NoOpRecord())
    assert aborted.visible is aborted
    assert aborted.topics == {}


def test_cleared_elr() -> None:
    image = image_of(broker(), *topic(), *topic("u", b"another topic id"))
    leaderless = [
        PartitionChangeRecord(
            partition_id=0, topic_id=id, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1]
        )
        for id in (TOPIC_ID, b"another topic id")
    ]
    image = after(image, *leaderless, ClearElrRecord(topic_name="t"))
    assert [image.topics[name].partitions[0].elr for name in "tu"] == [(), (1,)]
    image = after(image, ClearElrRecord(topic_name=""))
    assert [image.topics[name].partitions[0].last_known_elr for name in "tu"] == [(), ()]
    assert [image.topics[name].partitions[0].partition_epoch for name in "tu"] == [2, 2], "one more each, and only once"


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([partition(0)], "doesn't exist"),
        ([*topic(), TopicRecord(name="t", topic_id=b"another topic id")], "which exists"),
        ([TopicRecord(name="t", topic_id=TOPIC_ID), partition(1)], "lacks partition 0"),
        ([TopicRecord(name="t", topic_id=TOPIC_ID), partition(-1)], "index -1"),
        ([PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID)], "doesn't exist"),
        ([*topic(), PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID)], "t-1, which doesn't exist"),
        ([RemoveTopicRecord(topic_id=TOPIC_ID)], "doesn't exist"),
        ([broker(), BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1)], "isn't registered"),
        ([EndTransactionRecord()], "outside"),
        ([AbortTransactionRecord()], "outside"),
        ([BeginTransactionRecord(), BeginTransactionRecord()], "within"),
        ([RemoveAccessControlEntryRecord(id=TOPIC_ID)], "doesn't exist"),
        ([ClearElrRecord(topic_name="t")], "doesn't exist"),
    ],
)
def test_record_that_cannot_follow_is_refused(records: list[Record], reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        fold(EMPTY_IMAGE, records, 0, 0, 0)


def everything() -> ClusterImage:
    return image_of(
        broker(),
        broker(2, epoch=9, fenced=True, rack="r2"),
        RegisterControllerRecord(
            controller_id=1, end_points=[ControllerEndpoint(name="CONTROLLER", host="h", port=9093)]
        ),
        *topic(partitions=3),
        *topic("u", b"another topic id", replicas=(2, 1)),
        PartitionChangeRecord(
            partition_id=1, topic_id=TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1]
        ),
        ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"),
        ConfigRecord(resource_type=4, resource_name="", name="b", value=""),
        ClientQuotaRecord(
            entity=[EntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", value=1.5
        ),
        ProducerIdsRecord(broker_id=1, broker_epoch=6, next_producer_id=3000),
        AccessControlEntryRecord(id=TOPIC_ID, resource_name="r", principal="User:x", host="*"),
        UserScramCredentialRecord(name="x", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096),
    )


def test_image_as_records_gives_the_same_image() -> None:
    image = everything()
    level = image.metadata_version
    values = [encode_record(record, record_version(record, level)) for record in image_records(image)]
    again = fold(EMPTY_IMAGE, map(decode_record, values), image.offset, image.epoch, image.timestamp_ms)
    assert again == image
    assert list(image_records(again)) == list(image_records(image))


def test_features_come_first_in_a_snapshot() -> None:
    first = next(image_records(everything()))
    assert first == FeatureLevelRecord(name="metadata.version", feature_level=30)


@pytest.mark.parametrize(
    ("record", "level", "version"),
    [
        (PartitionRecord(), 30, 2),
        (PartitionRecord(), 22, 1),
        (PartitionChangeRecord(), 16, 0),
        (broker(), 30, 4),
        (broker(), 29, 3),
        (broker(), 8, 2),
        (broker(), 7, 1),
        (BrokerRegistrationChangeRecord(fenced=1), 30, 0),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 30, 1),
        (BrokerRegistrationChangeRecord(log_dirs=[DIRECTORY]), 30, 2),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), 30, 3),
        (TopicRecord(), 30, 0),
    ],
)
def test_records_are_written_in_the_version_of_the_level(record: Record, level: int, version: int) -> None:
    assert record_version(record, level) == version


def test_builder_loads_many_partitions_into_few_objects() -> None:
    builder = ImageBuilder(EMPTY_IMAGE)
    for record in topic(partitions=2000):
        builder.apply(record)
    image = builder.build(1, 1, 1)
    assert len({id(p) for p in image.topics["t"].partitions}) == 1


@pytest.mark.parametrize("partitions", [100, 10_000])
def test_one_change_costs_what_one_partition_costs(partitions: int) -> None:
    """In memory, and so in time: what is copied is allocated."""
    image = image_of(broker(), broker(2), *topic(partitions=partitions, replicas=(1, 2)))
    change = PartitionChangeRecord(partition_id=partitions // 2, topic_id=TOPIC_ID, leader=2, isr=[2])
    tracemalloc.start()
    try:
        new = fold(image, [change], image.offset + 1, 1, 1)
        allocated = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert allocated < 10_000
    assert list(new.topics["t"].partitions.differing(image.topics["t"].partitions)) == [partitions // 2]
    assert new.broker_replicas is image.broker_replicas, "who has a replica of what is as before"
    new.check_invariants()


def test_shape_of_topics_stays_while_only_leaders_change() -> None:
    """What follows topics, as groups do, looks at them when there is something to see."""
    image = image_of(broker(), broker(2), *topic(partitions=2, replicas=(1, 2)))
    led = after(image, PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=2, isr=[2]))
    assert led.topics is not image.topics
    assert led.topics_shape is image.topics_shape
    moved = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, replicas=[2, 1], directories=[])
    for change in ([moved], topic("u", b"another topic id"), [partition(2)], [RemoveTopicRecord(topic_id=TOPIC_ID)]):
        assert after(led, *change).topics_shape is not led.topics_shape
    undone = after(led, BeginTransactionRecord(name="x"), partition(2), AbortTransactionRecord(reason="test"))
    assert undone.topics_shape is led.topics_shape
