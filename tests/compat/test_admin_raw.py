"""Administration over plain requests: what no client library lets one ask for."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from tests.raw import Connection
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

BROKER = 4
TOPIC = 2
SET = 0
DELETE = 1


@pytest.fixture
def connection(bootstrap: str) -> Iterator[Connection]:
    with Connection(bootstrap) as opened:
        yield opened


@pytest.fixture
def fresh() -> str:
    """A name that no topic has yet."""
    return f"raw-{time.monotonic_ns()}"


def alter(connection: Connection, kind: int, name: str, setting: str, operation: int, value: str | None = None) -> int:
    configs = [{"name": setting, "config_operation": operation, "value": value}]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources})
    return answer.responses[0].error_code


def described(connection: Connection, kind: int, name: str) -> dict[str, Any]:
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    answer = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources, "include_synonyms": True})
    assert answer.results[0].error_code == 0
    return {entry.name: entry for entry in answer.results[0].configs}


@pytest.fixture
def for_all_brokers(connection: Connection) -> Iterator[Callable[[str, str], int]]:
    """Sets a dynamic default of all brokers, and takes it back."""
    changed: list[str] = []

    def change(name: str, value: str) -> int:
        changed.append(name)
        return alter(connection, BROKER, "", name, SET, value)

    yield change
    for name in changed:
        alter(connection, BROKER, "", name, DELETE)


def test_a_topic_follows_the_dynamic_default_of_all_brokers(
    connection: Connection, topic: str, for_all_brokers: Callable[[str, str], int]
) -> None:
    assert for_all_brokers("log.index.interval.bytes", "5000") == 0
    found = described(connection, TOPIC, topic)["index.interval.bytes"]
    assert (found.value, found.config_source) == ("5000", 3)
    assert [(one.value, one.source) for one in found.synonyms] == [("5000", 3), ("4096", 5)]
    assert described(connection, BROKER, "")["log.index.interval.bytes"].value == "5000"


def test_a_dynamic_default_counts_for_the_next_record(
    bootstrap: str, topic: str, for_all_brokers: Callable[[str, str], int]
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})

    def send() -> object:
        errors: list[Any] = []
        producer.produce(topic, bytes(100_000), partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0
        return errors[0] and errors[0].code()

    assert send() is None
    assert for_all_brokers("message.max.bytes", "50000") == 0
    assert send() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE


def test_a_timeout_of_nothing_is_over_at_once_and_nothing_is_made(connection: Connection, fresh: str) -> None:
    topics = [{"name": fresh, "num_partitions": 1, "replication_factor": 1}]
    answer = connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 0})
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    looked = {"topics": [{"name": fresh}], "allow_auto_topic_creation": False}
    assert connection.ask(ApiKey.METADATA, 12, looked).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_asked_for_is_made_only_where_the_client_allows_it(connection: Connection, fresh: str) -> None:
    asked = {"topics": [{"name": fresh}, {"name": "not/legal"}], "allow_auto_topic_creation": False}
    codes = [one.error_code for one in connection.ask(ApiKey.METADATA, 12, asked).topics]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]
    made, refused = connection.ask(ApiKey.METADATA, 12, asked | {"allow_auto_topic_creation": True}).topics
    assert (made.error_code, len(made.partitions)) == (0, 1)
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_internal_topic_is_there_before_a_coordinator_is_named(connection: Connection) -> None:
    for kind, name in ((0, "__consumer_offsets"), (1, "__transaction_state")):
        found = connection.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "tide", "key_type": kind})
        assert (found.error_code, found.node_id) == (0, 1)
        topic = connection.ask(ApiKey.METADATA, 12, {"topics": [{"name": name}]}).topics[0]
        assert (topic.is_internal, len(topic.partitions), topic.partitions[0].replica_nodes) == (True, 50, [1])
        assert described(connection, TOPIC, name)["cleanup.policy"].value == "compact"


def test_everyone_who_asks_at_once_gets_the_same_new_topic(bootstrap: str, fresh: str) -> None:
    connections = [Connection(bootstrap) for _ in range(5)]
    sent = [one.send(ApiKey.METADATA, 12, {"topics": [{"name": fresh}]}) for one in connections]
    ids = set()
    for one, correlation in zip(connections, sent, strict=True):
        told = one.answer(ApiKey.METADATA, 12, correlation).topics[0]
        assert told.error_code == 0
        ids.add(told.topic_id)
        one.close()
    assert len(ids) == 1


def test_deleted_records_stay_deleted_for_offsets_too(connection: Connection, bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(6):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(20) == 0
    asked = {
        "topics": [
            {"name": topic, "partitions": [{"partition_index": 0, "offset": 4}, {"partition_index": 9, "offset": 0}]}
        ],
        "timeout_ms": 10_000,
    }
    here, nowhere = connection.ask(ApiKey.DELETE_RECORDS, 2, asked).topics[0].partitions
    assert (here.low_watermark, here.error_code) == (4, 0)
    assert (nowhere.low_watermark, nowhere.error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    earliest = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -2}]}]}
    assert connection.ask(ApiKey.LIST_OFFSETS, 7, earliest).topics[0].partitions[0].offset == 4


def test_folders_tell_what_was_written(connection: Connection, bootstrap: str, topic: str) -> None:
    def size() -> int:
        asked = {"topics": [{"topic": topic, "partitions": [0]}]}
        (folder,) = connection.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, asked).results
        assert folder.error_code == 0
        assert 0 < folder.usable_bytes <= folder.total_bytes
        return folder.topics[0].partitions[0].partition_size

    assert size() == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, bytes(5000), partition=0)
    assert producer.flush(20) == 0
    assert 5000 < size() < 6000


def test_loggers_change_beside_topics_in_one_request(connection: Connection, topic: str) -> None:
    def resources(level: str) -> list[dict[str, Any]]:
        return [
            {"resource_type": 8, "resource_name": "1", "configs": [{"name": "root", "value": level}]},
            {"resource_type": TOPIC, "resource_name": topic, "configs": [{"name": "segment.ms", "value": "70001"}]},
            {"resource_type": 8, "resource_name": "2", "configs": [{"name": "root", "value": level}]},
        ]

    was = described(connection, 8, "1")["root"].value
    try:
        answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources("ERROR")})
        assert [one.error_code for one in answer.responses] == [0, 0, ErrorCode.INVALID_REQUEST]
        assert described(connection, 8, "1")["root"].value == "ERROR"
        assert described(connection, TOPIC, topic)["segment.ms"].value == "70001"
    finally:
        connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources(was)[:1]})


def test_versions_beyond_what_is_known_are_answered_in_version_0(connection: Connection) -> None:
    connection.send_frame(connection.header(ApiKey.API_VERSIONS, 99, 7))
    frame = connection.read_frame()
    assert frame == (7).to_bytes(4, "big") + b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\4"


def test_a_feature_level_that_is_held_already_is_no_news(connection: Connection) -> None:
    told = connection.ask(ApiKey.API_VERSIONS, 4, {"client_software_name": "t", "client_software_version": "1"})
    level = {one.name: one.max_version_level for one in told.finalized_features}["metadata.version"]
    update = {"feature": "metadata.version", "max_version_level": level, "upgrade_type": 1}
    assert connection.ask(ApiKey.UPDATE_FEATURES, 1, {"feature_updates": [update]}).error_code == 0
    again = connection.ask(ApiKey.API_VERSIONS, 4, {"client_software_name": "t", "client_software_version": "1"})
    assert again.finalized_features_epoch >= told.finalized_features_epoch >= 0
