"""Nobody is locked in: Apache Kafka on a folder that Tidelog wrote, Tidelog on one that Kafka wrote, and back again.

Whether the one before was stopped or killed, the same topics, configs, records and offsets are there, and the same
idempotent producer goes on without a gap or a double.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.batches import GZIP, LZ4, NONE, NOW_MS, SNAPPY, ZSTD, Batch, Producer, Sent
from tests.kafka.apache import ApacheKafka, tool
from tests.raw import Connection
from tests.reading import EARLIEST, LATEST, create_topic, list_offset, stored_batches
from tests.served import Tidelog
from tidelog.log.bounds import STOP_SAVED_MAX
from tidelog.wire.keys import ApiKey

TOPICS = {
    "plain": (3, {}),
    "kept": (1, {"retention.ms": "-1", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}),
    "small": (2, {"segment.bytes": "1048576", "max.message.bytes": "5000", "compression.type": "producer"}),
    "empty": (2, {"retention.bytes": "12345"}),
}
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET = 0
DYNAMIC_TOPIC_CONFIG = 1


@dataclass
class Writer:
    """An idempotent producer that outlives brokers: its id, the next sequence, and its last five batches."""

    id: int
    sequence: int = 0
    last: list[tuple[bytes, int]] = field(default_factory=list)

    def go_on(self, connection: Connection, count: int) -> None:
        """The last five again, which are known at their offsets; then more, without a gap or a double."""
        for data, offset in self.last[-1:]:
            assert self.send(connection, data) == offset
        for number in range(count):
            records = [Sent(b"%d" % (self.sequence + place), key=b"k") for place in range(number % 3 + 1)]
            data = Batch(records, producer=Producer(self.id, 0, self.sequence)).encode()
            offset = self.send(connection, data)
            if self.last:
                assert offset > self.last[-1][1]
            assert offset == self.sequence
            self.last.append((data, offset))
            self.sequence += len(records)

    def send(self, connection: Connection, data: bytes) -> int:
        return produce(connection, "kept", 0, data)


def produce(connection: Connection, topic: str, partition: int, data: bytes) -> int:
    parts = [{"index": partition, "records": data}]
    fields = {"acks": -1, "timeout_ms": 10_000, "topic_data": [{"name": topic, "partition_data": parts}]}
    answer = connection.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0]
    assert answer.error_code == 0, f"produce to {topic}-{partition} failed: {answer.error_code} {answer.error_message}"
    return answer.base_offset


def fill(bootstrap: str) -> Writer:
    """Topics, configs and records of every kind: codecs, headers, nulls, deleted records, a deleted topic."""
    for name, (partitions, configs) in {**TOPICS, "gone": (1, {})}.items():
        create_topic(bootstrap, name, partitions, configs)
    wait_for_topics(bootstrap, {*TOPICS, "gone"})
    with Connection(bootstrap) as connection:
        for place, codec in enumerate((NONE, GZIP, SNAPPY, LZ4, ZSTD)):
            records = [Sent(b"v" * 50, key=b"k%d" % place, headers=[("h", b"x"), ("n", None)]), Sent(None, None)]
            produce(connection, "plain", place % 3, Batch(records, codec=codec).encode())
        for number in range(20):
            produce(connection, "small", 0, Batch([Sent(b"%d" % number + b"." * 100)]).encode())
        produce(connection, "gone", 0, Batch([Sent(b"gone")]).encode())
        trimmed = [{"name": "small", "partitions": [{"partition_index": 0, "offset": 7}]}]
        connection.ask(ApiKey.DELETE_RECORDS, 2, {"topics": trimmed, "timeout_ms": 10_000})
        # Kafka keeps a log's new start only once a minute, and when a topic is deleted.
        connection.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["gone"], "timeout_ms": 10_000})
        change = {"name": "log.retention.ms", "config_operation": SET, "value": "86400001"}
        resource = {"resource_type": BROKER_RESOURCE, "resource_name": "", "configs": [change]}
        connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
        while config(connection, "plain", "retention.ms") != "86400001":
            pass  # Kafka's broker follows its controller some milliseconds behind
        writer = Writer(new_producer(connection))
        writer.go_on(connection, 8)
    return writer


def config(connection: Connection, topic: str, name: str) -> str:
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": [name]}
    return connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results[0].configs[0].value


def new_producer(connection: Connection) -> int:
    while True:
        answer = connection.ask(
            ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 60_000}
        )
        if answer.error_code == 0:
            return answer.producer_id
        assert answer.error_code == 14, f"no producer id: {answer.error_code}"


def wait_for_topics(bootstrap: str, names: set[str]) -> None:
    """Until each partition of these topics has a leader who serves it."""
    with Connection(bootstrap) as connection:
        while True:
            asked = {"topics": [{"name": name} for name in sorted(names)], "allow_auto_topic_creation": False}
            topics = connection.ask(ApiKey.METADATA, 9, asked).topics
            parts = [(topic.name, part.partition_index) for topic in topics for part in topic.partitions]
            if all(topic.error_code == 0 for topic in topics) and all(
                offset_error(connection, *part) == 0 for part in parts
            ):
                return


def offset_error(connection: Connection, topic: str, partition: int) -> int:
    part = {"partition_index": partition, "timestamp": LATEST}
    fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": [part]}]}
    return connection.ask(ApiKey.LIST_OFFSETS, 5, fields).topics[0].partitions[0].error_code


def state(bootstrap: str) -> dict[str, Any]:
    """Everything a client can see of the topics: ids, configs that were set, offsets, and every batch."""
    wait_for_topics(bootstrap, set(TOPICS))
    seen: dict[str, Any] = {}
    with Connection(bootstrap) as connection:
        metadata = connection.ask(ApiKey.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})
        seen["cluster"] = metadata.cluster_id
        for topic in metadata.topics:
            if topic.is_internal:
                continue
            resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic.name, "configuration_keys": None}
            configs = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results[0].configs
            partitions = sorted(part.partition_index for part in topic.partitions)
            seen[topic.name] = {
                "id": topic.topic_id,
                "configs": {c.name: c.value for c in configs if c.config_source == DYNAMIC_TOPIC_CONFIG},
                "retention.ms": next(c.value for c in configs if c.name == "retention.ms"),
                "partitions": {
                    index: (
                        list_offset(connection, topic.name, EARLIEST, index),
                        list_offset(connection, topic.name, LATEST, index),
                        list(stored_batches(connection, topic.name, index)),
                    )
                    for index in partitions
                },
            }
    return seen


def apart(now: Any, before: Any, path: str = "") -> Iterator[str]:
    """Where two states differ, one line each."""
    if isinstance(now, dict) and isinstance(before, dict):
        for key in {**now, **before}:
            yield from apart(now.get(key), before.get(key), f"{path}/{key}")
    elif isinstance(now, list | tuple) and isinstance(before, list | tuple) and len(now) == len(before):
        for place, (new, old) in enumerate(zip(now, before, strict=True)):
            yield from apart(new, old, f"{path}/{place}")
    elif now != before:
        yield f"{path}: {str(now)[:200]} instead of {str(before)[:200]}"


class Folder:
    """A folder that brokers take turns on."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are for both of them."""
        self.folder = folder
        self.settings = dict(settings or {})

    @contextmanager
    def tidelog(self, end: str) -> Iterator[str]:
        with Tidelog(self.folder, {"node.id": "1", **self.settings}) as broker:
            yield broker.bootstrap
            getattr(broker, end)()

    @contextmanager
    def kafka(self, end: str) -> Iterator[str]:
        with ApacheKafka(self.folder, self.settings, node_id=1) as broker:
            yield broker.bootstrap
            getattr(broker, end)()


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("first", ["tidelog", "kafka"])
def test_brokers_take_turns_on_one_folder(jars: Path, tmp_path: Path, first: str, end: str) -> None:
    folder = Folder(tmp_path / "data")
    second = "kafka" if first == "tidelog" else "tidelog"
    with getattr(folder, first)(end) as bootstrap:
        writer = fill(bootstrap)
        before = state(bootstrap)
        assert before.keys() - {"cluster"} == TOPICS.keys()
    for turn in (second, first, second):
        with getattr(folder, turn)(end) as bootstrap:
            assert list(apart(state(bootstrap), before)) == []
            with Connection(bootstrap) as connection:
                writer.go_on(connection, 5)
                assert new_producer(connection) > writer.id
            create_topic(bootstrap, f"made-by-{turn}-{writer.sequence}")
            wait_for_topics(bootstrap, {f"made-by-{turn}-{writer.sequence}"})
            before = state(bootstrap)
            values = [value for batch in before["kept"]["partitions"][0][2] for _, _, value in batch.values()]
            assert values == [b"%d" % number for number in range(writer.sequence)]


def test_logs_of_which_a_stop_saved_little(jars: Path, tmp_path: Path) -> None:
    """There are more partitions than a stop saves indexes, producers and leader epochs of: Kafka reads the batches."""
    folder, count = Folder(tmp_path / "data"), STOP_SAVED_MAX + 40
    later_ms = NOW_MS + 1000

    def nth(number: int) -> bytes:
        return Batch(
            [Sent(b"%d" % number)], producer=Producer(writer, 0, number), base_timestamp=later_ms + number
        ).encode()

    with folder.tidelog("stop") as bootstrap:
        create_topic(bootstrap, "many", count)
        with Connection(bootstrap) as connection:
            writer = new_producer(connection)
            assert [produce(connection, "many", index, nth(0)) for index in range(count)] == [0] * count
    for turn, known in (("tidelog", 1), ("kafka", 2), ("tidelog", 3)):
        with getattr(folder, turn)("stop") as bootstrap, Connection(bootstrap) as connection:
            wait_for_topics(bootstrap, {"many"})
            for index in range(count):
                assert produce(connection, "many", index, nth(known - 1)) == known - 1, "it was sent before"
                assert list_offset(connection, "many", LATEST, index) == known
                assert list_offset(connection, "many", later_ms + known - 1, index) == known - 1
                assert last_epoch_end(connection, "many", index) == known
                assert produce(connection, "many", index, nth(known)) == known


def last_epoch_end(connection: Connection, topic: str, partition: int) -> int:
    """Where the leader epoch of the last batch ends, which nobody but it wrote in."""
    *_, last = stored_batches(connection, topic, partition)
    part = {"partition": partition, "current_leader_epoch": -1, "leader_epoch": last.leader_epoch}
    topics = [{"topic": topic, "partitions": [part]}]
    answer = connection.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"replica_id": -1, "topics": topics})
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch) == (0, last.leader_epoch)
    return found.end_offset


def test_kafkas_tools_read_what_tidelog_wrote_and_kafka_went_on_with(jars: Path, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    with folder.tidelog("stop") as bootstrap:
        fill(bootstrap)
    with folder.kafka("stop") as bootstrap:
        described = tool("TopicCommand", "--bootstrap-server", bootstrap, "--describe", "--topic", "kept")
        assert "cleanup.policy=compact" in described.stdout, described.stdout + described.stderr
        quorum = tool("MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", "--status")
        assert "LeaderId:" in quorum.stdout, quorum.stdout + quorum.stderr
