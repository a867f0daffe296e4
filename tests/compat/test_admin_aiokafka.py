"""aiokafka's admin client, which speaks old versions only."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

T = TypeVar("T")


def run(bootstrap: str, story: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
    async def told() -> T:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            return await story(client)
        finally:
            await client.close()

    return asyncio.run(asyncio.wait_for(told(), 30))


def test_a_topic_is_made_grown_and_deleted(bootstrap: str) -> None:
    name = f"aiokafka-{time.monotonic_ns()}"

    async def story(client: AIOKafkaAdminClient) -> None:
        made = await client.create_topics([NewTopic(name=name, num_partitions=2, replication_factor=1)])
        assert [error[1] for error in made.topic_errors] == [0]
        grown = await client.create_partitions({name: NewPartitions(3)})
        assert [error[1] for error in grown.topic_errors] == [0]
        described = await client.describe_topics([name])
        assert len(described[0]["partitions"]) == 3
        gone = await client.delete_topics([name])
        assert gone.topic_error_codes == [(name, 0)]
        assert name not in await client.list_topics()

    run(bootstrap, story)


def test_settings_are_changed_and_told(bootstrap: str, topic: str) -> None:
    async def story(client: AIOKafkaAdminClient) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "63000"})
        altered = await client.alter_configs([resource])
        assert all(answer.resources[0][0] == 0 for answer in ([altered] if not isinstance(altered, list) else altered))
        described = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        assert "63000" in str(described[0].resources)

    run(bootstrap, story)


def test_the_cluster_is_described(bootstrap: str) -> None:
    async def story(client: AIOKafkaAdminClient) -> None:
        cluster = await client.describe_cluster()
        assert len(cluster["brokers"]) == 1

    run(bootstrap, story)


def test_records_are_deleted(bootstrap: str, topic: str) -> None:
    async def story(client: AIOKafkaAdminClient) -> None:
        answer = await client.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=0)})
        assert answer == {TopicPartition(topic, 0): 0}

    run(bootstrap, story)


def test_a_groups_coordinator_is_found(bootstrap: str) -> None:
    async def story(client: AIOKafkaAdminClient) -> None:
        assert await client.find_coordinator("a-group") >= 0

    run(bootstrap, story)
