"""kafka-python's admin client: it speaks newer versions than librdkafka, and asks for things librdkafka doesn't."""

import time
from collections.abc import Iterator

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import TopicAlreadyExistsError

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def fresh() -> str:
    """A name that no topic has yet."""
    return f"kafka-python-{time.monotonic_ns()}"


def test_a_topic_is_made_grown_described_and_deleted(admin: KafkaAdminClient, fresh: str) -> None:
    admin.create_topics([NewTopic(name=fresh, num_partitions=2, replication_factor=1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name=fresh, num_partitions=2, replication_factor=1)])
    admin.create_partitions({fresh: 4})
    described = admin.describe_topics([fresh])[0]
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1, 2, 3]
    assert fresh in admin.list_topics()
    admin.delete_topics([fresh])
    assert fresh not in admin.list_topics()


def test_partitions_are_described_page_by_page(admin: KafkaAdminClient, fresh: str) -> None:
    admin.create_topics([NewTopic(name=fresh, num_partitions=7, replication_factor=1)])
    pages = admin.describe_topic_partitions([fresh], response_partition_limit=3)
    found = [partition["partition_index"] for topic in pages["topics"] for partition in topic["partitions"]]
    assert found[:3] == [0, 1, 2]


def test_settings_are_changed_and_refused(admin: KafkaAdminClient, fresh: str) -> None:
    admin.create_topics([NewTopic(name=fresh, num_partitions=1, replication_factor=1)])
    resource = ConfigResource(ConfigResourceType.TOPIC, fresh, configs={"retention.ms": "60000"})
    admin.alter_configs([resource])
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, fresh)], config_filter="all")
    values = described["topic"][fresh] if "topic" in described else next(iter(described.values()))
    assert "60000" in str(values)
    wrong = ConfigResource(ConfigResourceType.TOPIC, fresh, configs={"retention.ms": "soon"})
    assert "InvalidConfigurationError" in str(admin.alter_configs([wrong]))


def test_records_are_deleted_up_to_an_offset(admin: KafkaAdminClient, bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(5):
        producer.send(topic, str(number).encode(), partition=0)
    producer.flush()
    producer.close()
    answer = admin.delete_records({TopicPartition(topic, 0): 3})
    assert answer[TopicPartition(topic, 0)]["low_watermark"] == 3


def test_what_there_is_on_disk_is_told(admin: KafkaAdminClient, topic: str) -> None:
    assert topic in str(admin.describe_log_dirs())


def test_the_quorum_is_described(admin: KafkaAdminClient) -> None:
    quorum = admin.describe_metadata_quorum()
    assert "current_voters" in str(quorum)


def test_the_cluster_and_its_features_are_described(admin: KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()
    assert len(cluster["brokers"]) == 1
    assert "metadata.version" in str(admin.describe_features())


def test_producers_are_described(admin: KafkaAdminClient, bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    producer.send(topic, b"once", partition=0)
    producer.flush()
    producer.close()
    described = admin.describe_producers([TopicPartition(topic, 0)])
    assert "producer_id" in str(described)


def test_nothing_is_being_reassigned(admin: KafkaAdminClient) -> None:
    assert not admin.list_partition_reassignments()


def test_config_resources_are_listed(admin: KafkaAdminClient, topic: str) -> None:
    assert topic in str(admin.list_config_resources())
