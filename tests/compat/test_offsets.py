"""Other people's clients keep their place: offsets committed by hand, without members, and found again."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka import admin as confluent_admin

import kafka

DEADLINE_S = 30.0

Keep = Callable[[str, str, str, dict[int, tuple[int, str]]], dict[int, tuple[int, str] | None]]
"""(bootstrap, group, topic, offsets with a text to commit) -> what a second consumer finds for partitions 0 to 2."""


def confluent(
    bootstrap: str, group: str, topic: str, offsets: dict[int, tuple[int, str]]
) -> dict[int, tuple[int, str] | None]:
    def consumer() -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        )

    first = consumer()
    first.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(3)])
    told = first.commit(
        offsets=[
            confluent_kafka.TopicPartition(topic, index, offset, metadata=text)
            for index, (offset, text) in offsets.items()
        ],
        asynchronous=False,
    )
    assert told is not None
    assert all(one.error is None for one in told)
    first.close()
    second = consumer()
    asked = [confluent_kafka.TopicPartition(topic, index) for index in range(3)]
    found = second.committed(asked, timeout=DEADLINE_S)
    second.close()
    return {one.partition: None if one.offset < 0 else (one.offset, one.metadata or "") for one in found}


def kafka_python(
    bootstrap: str, group: str, topic: str, offsets: dict[int, tuple[int, str]]
) -> dict[int, tuple[int, str] | None]:
    def consumer() -> Any:
        return kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)

    partitions = [kafka.TopicPartition(topic, index) for index in range(3)]
    first = consumer()
    first.assign(partitions)
    first.commit(
        {partitions[index]: kafka.OffsetAndMetadata(offset, text, -1) for index, (offset, text) in offsets.items()}
    )
    first.close()
    second = consumer()
    second.assign(partitions)
    found = {one.partition: second.committed(one, metadata=True) for one in partitions}
    second.close()
    return {index: None if one is None else (one.offset, one.metadata) for index, one in found.items()}


def aio(
    bootstrap: str, group: str, topic: str, offsets: dict[int, tuple[int, str]]
) -> dict[int, tuple[int, str] | None]:
    async def keep() -> dict[int, tuple[int, str] | None]:
        partitions = [aiokafka.TopicPartition(topic, index) for index in range(3)]
        first = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        await first.start()
        first.assign(partitions)
        await first.commit({partitions[index]: offset for index, offset in offsets.items()})
        await first.stop()
        second = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        await second.start()
        second.assign(partitions)
        found = {one.partition: cast("int | None", await second.committed(one)) for one in partitions}
        await second.stop()
        return {
            index: None if offset is None else (offset, offsets.get(index, (0, ""))[1])
            for index, offset in found.items()
        }

    return asyncio.run(asyncio.wait_for(keep(), DEADLINE_S))


@pytest.mark.parametrize("keep", [confluent, kafka_python, aio])
def test_a_consumer_without_members_finds_its_place_again(
    keep: Keep, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(3)
    group = f"{topic}-{keep.__name__}"
    assert keep(bootstrap, group, topic, {0: (5, "first"), 2: (7, "")}) == {0: (5, "first"), 1: None, 2: (7, "")}
    assert keep(bootstrap, group, topic, {0: (4, "back")}) == {0: (4, "back"), 1: None, 2: (7, "")}


def test_an_administrator_lists_reads_sets_and_deletes(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(3)
    group = f"{topic}-admin"
    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    wanted = [confluent_kafka.TopicPartition(topic, index, index + 10) for index in range(2)]
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group, wanted)
    admin.alter_consumer_group_offsets([asked])[group].result(DEADLINE_S)
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert {one.group_id: one.state.name for one in listed.valid}[group] == "EMPTY"
    everything = confluent_kafka.ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([everything])[group].result(DEADLINE_S)
    assert {one.partition: one.offset for one in found.topic_partitions} == {0: 10, 1: 11}
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    assert (described.state.name, described.members) == ("EMPTY", [])
    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    left = admin.list_consumer_groups().result(DEADLINE_S)
    assert group not in {one.group_id for one in left.valid}
    with pytest.raises(confluent_kafka.KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)


def test_kafka_pythons_administrator_deletes_offsets_of_one_partition(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    group = f"{topic}-admin"
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    first, second = (kafka.TopicPartition(topic, index) for index in range(2))
    consumer.assign([first, second])
    consumer.commit({one: kafka.OffsetAndMetadata(3, "", -1) for one in (first, second)})
    consumer.close()
    admin: Any = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        assert {one.partition for one in admin.list_group_offsets(group)[group]} == {0, 1}
        admin.delete_group_offsets(group, [first])
        assert {one.partition for one in admin.list_group_offsets(group)[group]} == {1}
    finally:
        admin.close()
