"""librdkafka's admin client: topics, settings, records, cluster."""

import time
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

T = TypeVar("T")
DEADLINE_S = 20


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def fresh() -> str:
    """A name that no topic has yet."""
    return f"confluent-{time.monotonic_ns()}"


def wait(futures: "dict[Any, Future[T]]") -> list[T]:
    return [future.result(DEADLINE_S) for future in futures.values()]


def refused(futures: "dict[Any, Future[Any]]") -> int:
    with pytest.raises(KafkaException) as caught:
        wait(futures)
    return caught.value.args[0].code()


def configs(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    return wait(admin.describe_configs([ConfigResource(kind, name)]))[0]


def change(operation: AlterConfigOpType, **settings: str | None) -> list[ConfigEntry]:
    return [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=operation) for name, value in settings.items()
    ]


def test_a_topic_is_made_described_and_deleted(admin: AdminClient, fresh: str) -> None:
    wait(admin.create_topics([NewTopic(fresh, 3, 1, config={"retention.ms": "60000"})]))
    described = wait(admin.describe_topics(TopicCollection([fresh])))[0]
    assert described.name == fresh
    assert not described.is_internal
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert all(len(partition.replicas) == len(partition.isr) == 1 for partition in described.partitions)
    assert configs(admin, ResourceType.TOPIC, fresh)["retention.ms"].value == "60000"
    assert refused(admin.create_topics([NewTopic(fresh, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    wait(admin.delete_topics([fresh]))
    assert fresh not in admin.list_topics(timeout=DEADLINE_S).topics
    assert refused(admin.delete_topics([fresh])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_made_again_under_its_name_is_another(admin: AdminClient, fresh: str) -> None:
    ids: set[str] = set()
    for _ in range(2):
        wait(admin.create_topics([NewTopic(fresh, 1, 1)]))
        ids.add(str(wait(admin.describe_topics(TopicCollection([fresh])))[0].topic_id))
        wait(admin.delete_topics([fresh]))
    assert len(ids) == 2


def test_defaults_are_asked_for_with_minus_one(admin: AdminClient, fresh: str) -> None:
    wait(admin.create_topics([NewTopic(fresh, -1, -1)]))
    described = wait(admin.describe_topics(TopicCollection([fresh])))[0]
    assert len(described.partitions) == 1
    assert len(described.partitions[0].replicas) == 1


def test_validate_only_makes_nothing(admin: AdminClient, fresh: str) -> None:
    wait(admin.create_topics([NewTopic(fresh, 1, 1)], validate_only=True))
    assert fresh not in admin.list_topics(timeout=DEADLINE_S).topics


@pytest.mark.parametrize(
    ("partitions", "replicas", "config", "code"),
    [
        (0, 1, {}, KafkaError.INVALID_PARTITIONS),
        (1, 9, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        (1, 1, {"no.such.setting": "1"}, KafkaError.INVALID_CONFIG),
        (1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_an_impossible_topic_is_refused(
    admin: AdminClient, fresh: str, partitions: int, replicas: int, config: dict[str, str], code: int
) -> None:
    assert refused(admin.create_topics([NewTopic(fresh[:100], partitions, replicas, config=config)])) == code


def test_an_illegal_name_is_refused(admin: AdminClient) -> None:
    assert refused(admin.create_topics([NewTopic("tide/../..", 1, 1)])) == KafkaError.TOPIC_EXCEPTION


def test_a_topic_gets_more_partitions(admin: AdminClient, fresh: str) -> None:
    wait(admin.create_topics([NewTopic(fresh, 2, 1)]))
    wait(admin.create_partitions([NewPartitions(fresh, 5)]))
    assert len(admin.list_topics(fresh, timeout=DEADLINE_S).topics[fresh].partitions) == 5
    assert refused(admin.create_partitions([NewPartitions(fresh, 3)])) == KafkaError.INVALID_PARTITIONS


def test_settings_change_one_by_one(admin: AdminClient, fresh: str) -> None:
    wait(admin.create_topics([NewTopic(fresh, 1, 1, config={"segment.ms": "70000"})]))
    entries = change(AlterConfigOpType.SET, retention_ms="61000")
    entries += change(AlterConfigOpType.APPEND, cleanup_policy="compact")
    wait(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, fresh, incremental_configs=entries)]))
    found = configs(admin, ResourceType.TOPIC, fresh)
    assert found["retention.ms"].value == "61000"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["cleanup.policy"].value == "delete,compact"
    assert found["segment.ms"].value == "70000", "what isn't named stays"
    assert found["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert list(found["segment.bytes"].synonyms) == ["log.segment.bytes"]
    gone = change(AlterConfigOpType.DELETE, retention_ms=None)
    wait(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, fresh, incremental_configs=gone)]))
    assert configs(admin, ResourceType.TOPIC, fresh)["retention.ms"].value == "604800000"


def test_settings_are_replaced_all_at_once(admin: AdminClient, fresh: str) -> None:
    wait(admin.create_topics([NewTopic(fresh, 1, 1, config={"segment.ms": "70000"})]))
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        wait(admin.alter_configs([ConfigResource(ResourceType.TOPIC, fresh, set_config={"retention.ms": "62000"})]))
    found = configs(admin, ResourceType.TOPIC, fresh)
    assert found["retention.ms"].value == "62000"
    assert found["segment.ms"].value == "604800000", "what isn't named goes back"


def test_a_wrong_setting_is_refused(admin: AdminClient, fresh: str) -> None:
    wait(admin.create_topics([NewTopic(fresh, 1, 1)]))

    def alter(name: str, **settings: str) -> int:
        entries = change(AlterConfigOpType.SET, **settings)
        return refused(
            admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)])
        )

    assert alter(fresh, retention_ms="soon") == KafkaError.INVALID_CONFIG
    assert alter(f"{fresh}-not", retention_ms="5") == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_brokers_settings_are_told_and_some_can_change(admin: AdminClient) -> None:
    broker = str(next(iter(admin.list_topics(timeout=DEADLINE_S).brokers)))
    found = configs(admin, ResourceType.BROKER, broker)
    assert found["log.retention.ms"].value is None
    assert found["node.id"].is_read_only
    assert not found["log.retention.ms"].is_read_only
    entries = change(AlterConfigOpType.SET, log_cleaner_min_compaction_lag_ms="17")
    wait(admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, broker, incremental_configs=entries)]))
    found = configs(admin, ResourceType.BROKER, broker)
    assert found["log.cleaner.min.compaction.lag.ms"].value == "17"
    assert found["log.cleaner.min.compaction.lag.ms"].source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    gone = change(AlterConfigOpType.DELETE, log_cleaner_min_compaction_lag_ms=None)
    wait(admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, broker, incremental_configs=gone)]))
    fixed = change(AlterConfigOpType.SET, num_partitions="7")
    assert (
        refused(
            admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, broker, incremental_configs=fixed)])
        )
        == KafkaError.INVALID_REQUEST
    )


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(DEADLINE_S) == 0
    assert wait(admin.delete_records([TopicPartition(topic, 0, 4)]))[0].low_watermark == 4
    assert wait(admin.delete_records([TopicPartition(topic, 0, 2)]))[0].low_watermark == 4, "never back"
    assert wait(admin.delete_records([TopicPartition(topic, 0, -1)]))[0].low_watermark == 10
    assert refused(admin.delete_records([TopicPartition(topic, 0, 11)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_cluster_is_described(admin: AdminClient) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(DEADLINE_S)
    assert len(cluster.cluster_id) == 22
    assert [node.id for node in cluster.nodes] == [cluster.controller.id]
    assert len(cluster.authorized_operations) == 7


def test_a_topic_is_made_when_a_producer_first_asks_for_it(bootstrap: str, fresh: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    errors: list[object] = []
    producer.produce(fresh, b"here", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [None]


def test_there_are_no_acls(admin: AdminClient) -> None:
    from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType

    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert admin.describe_acls(everything).result(DEADLINE_S) == []


def test_a_user_without_credentials_is_not_found(admin: AdminClient) -> None:
    assert refused(admin.describe_user_scram_credentials(["nobody"])) == KafkaError.RESOURCE_NOT_FOUND


def test_an_election_that_nobody_needs_is_not_held(admin: AdminClient, topic: str) -> None:
    from confluent_kafka import ElectionType

    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(DEADLINE_S)
    assert [error.code() for error in elected.values()] == [KafkaError.ELECTION_NOT_NEEDED]
