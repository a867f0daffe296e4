"""What a partition holds, read over a plain connection: for tests that account for every record."""

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.batches import Read, batches
from tests.raw import Connection
from tidelog.wire.keys import ApiKey

LATEST, EARLIEST = -1, -2
READ_S = 60.0


def create_topic(bootstrap: str, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
    """Make a topic; an AssertionError where the broker won't."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    with Connection(bootstrap) as connection:
        answer = connection.ask(ApiKey.CREATE_TOPICS, 6, {"topics": [topic], "timeout_ms": 10_000}).topics[0]
    assert answer.error_code == 0, f"{name} was not made: {answer.error_code} {answer.error_message}"


def list_offset(connection: Connection, topic: str, timestamp: int, partition: int = 0) -> int:
    """The offset that ListOffsets answers for a timestamp, special ones included."""
    part = {"partition_index": partition, "timestamp": timestamp}
    fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": [part]}]}
    answer = connection.ask(ApiKey.LIST_OFFSETS, 5, fields).topics[0].partitions[0]
    assert answer.error_code == 0, f"ListOffsets {timestamp} of {topic}-{partition} failed with {answer.error_code}"
    return answer.offset


def fetch(connection: Connection, topic: str, offset: int, partition: int = 0, *, wait_ms: int = 0) -> Any:
    """One Fetch of one partition; its part of the answer."""
    part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 4 << 20, "current_leader_epoch": -1}
    fields = {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": 8 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [part]}],
        "forgotten_topics_data": [],
    }
    return connection.ask(ApiKey.FETCH, 11, fields).responses[0].partitions[0]


def stored_batches(connection: Connection, topic: str, partition: int = 0) -> Iterator[Read]:
    """Every batch from the log's start to its end."""
    offset = list_offset(connection, topic, EARLIEST, partition)
    end = list_offset(connection, topic, LATEST, partition)
    while offset < end:
        answer = fetch(connection, topic, offset, partition)
        assert answer.error_code == 0, f"Fetch of {topic}-{partition} at {offset} failed with {answer.error_code}"
        read = list(batches(bytes(answer.records or b"")))
        assert read, f"{topic}-{partition} ends at {end}, but nothing comes at {offset}"
        for batch in read:
            if batch.next_offset > offset:
                yield batch
                offset = batch.next_offset


def stored(bootstrap: str, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record of a partition; its batches have right CRCs and follow without a gap."""
    found: list[tuple[int, bytes | None]] = []
    with Connection(bootstrap) as connection:
        expected = list_offset(connection, topic, EARLIEST, partition)
        for batch in stored_batches(connection, topic, partition):
            assert batch.crc_is_right, f"{topic}-{partition} at {batch.base_offset}: wrong CRC"
            assert batch.base_offset == expected, f"{topic}-{partition}: {batch.base_offset} follows {expected - 1}"
            expected = batch.next_offset
            found += [(offset, value) for offset, _, value in batch.values()]
    return found


def committed(bootstrap: str, topic: str, partitions: int) -> list[list[bytes]]:
    """What a reader of committed records finds in each partition, up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[list[bytes]] = [[] for _ in range(partitions)]
    ended: set[int] = set()

    def read() -> bool:
        for message in consumer.consume(1000, 0.2):
            error, index = message.error(), message.partition()
            assert index is not None
            if error is None:
                values[index].append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(index)
        return len(ended) == partitions

    deadline = time.monotonic() + READ_S
    try:
        while not read():
            assert time.monotonic() < deadline, f"no end of {topic} in {READ_S:g} s: a transaction is open"
    finally:
        consumer.close()
    return values
