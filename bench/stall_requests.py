"""Stalls by requests: large ones, many on a connection, parked ones, and those that make or hold much."""

import time
from collections.abc import Callable
from typing import Any

from tests.group_requests import find_coordinator
from tests.raw import ClosedError

from bench.group_members import ConsumerGroup
from bench.group_players import Stage
from bench.programs import BenchError
from bench.stall_data import fetch_fields, produce_fields
from bench.stall_target import GIVES_UP_S, Target, frame_of, framed, skip_answer
from tidelog.wire.keys import ApiKey

ELEMENTS = 250_000
"""Of all arrays of a request: the most that the broker takes."""
COMMITTED_TOPICS, COMMITTED_PARTITIONS = 10, 10_000
MEMBERS, ASSIGNED_PARTITIONS = 200, 10_000
DESCRIBED = 31
DESCRIBED_BYTES = 261_000
METADATA_TOPICS = 100
METADATA_CONNECTIONS, METADATA_REQUESTS = 10, 4000
NEVER_READING = 200
NEVER_READING_REQUESTS = 500
NEVER_READING_S = 5.0
PARKED_MISSING, MISSING_PARTITIONS = 3, 199_999
PARKED_MANY, MANY_PARTITIONS = 50, 2000
PARKED_S = 5.0
MADE_BY_METADATA, MADE_BY_CREATE = 100_000, 30_000
SESSIONS, SESSION_PARTITIONS = 9, 222_222
TAGGED_TOPICS, TAGS = 45_000, 1000
BROKER_RESOURCE, TOPIC_RESOURCE = 4, 2


def commit_of_100000(target: Target) -> Callable[[], None]:
    return target.exchange([frame_of(ApiKey.OFFSET_COMMIT, 8, _committing(target))])


def _committing(target: Target) -> dict[str, Any]:
    """Makes the topics; what commits an offset for each of their partitions."""
    for number in range(COMMITTED_TOPICS):
        target.create(f"committed-{number}", COMMITTED_PARTITIONS)
    find_coordinator(target.connect(), "committing")
    topics = [
        {"name": f"committed-{number}", "partitions": [_committed(index) for index in range(COMMITTED_PARTITIONS)]}
        for number in range(COMMITTED_TOPICS)
    ]
    return {"group_id": "committing", "topics": topics}


def group_of_100000(target: Target) -> Callable[[], None]:
    """DeleteGroups."""
    target.exchange([frame_of(ApiKey.OFFSET_COMMIT, 8, _committing(target))])()
    return target.exchange([frame_of(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["committing"]})])


def offset_delete_of_100000(target: Target) -> Callable[[], None]:
    fields = _committing(target)
    target.exchange([frame_of(ApiKey.OFFSET_COMMIT, 8, fields)])()
    indexes = [{"partition_index": index} for index in range(COMMITTED_PARTITIONS)]
    fields["topics"] = [{"name": topic["name"], "partitions": indexes} for topic in fields["topics"]]
    return target.exchange([frame_of(ApiKey.OFFSET_DELETE, 0, fields)])


def transaction_of_100000(target: Target) -> Callable[[], None]:
    """EndTxn, and the answer of a next InitProducerId: that waits for the marker."""
    fields, connection = _committing(target), target.connect()
    connection.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["ending"]})
    first = {"transactional_id": "ending", "transaction_timeout_ms": 60_000}
    while (begun := connection.ask(ApiKey.INIT_PRODUCER_ID, 4, first)).error_code:
        time.sleep(0.01)
    producer = {
        "transactional_id": "ending",
        "producer_id": begun.producer_id,
        "producer_epoch": begun.producer_epoch,
    }
    target.exchange([frame_of(ApiKey.TXN_OFFSET_COMMIT, 5, {**fields, **producer})])()

    def end() -> None:
        connection.ask(ApiKey.END_TXN, 5, {**producer, "committed": True})
        while connection.ask(ApiKey.INIT_PRODUCER_ID, 4, first).error_code:
            time.sleep(0.01)

    return end


def _committed(index: int) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": 1}


def assignments(target: Target) -> Callable[[], None]:
    """Members of one group come, all at once, until each has its share."""
    target.create("assigned", ASSIGNED_PARTITIONS)
    find_coordinator(target.connect(), "assigned-group")

    def join() -> None:
        with Stage(target.broker.port) as stage:
            group = ConsumerGroup(stage, "assigned-group", "assigned", ASSIGNED_PARTITIONS, MEMBERS)
            try:
                stage.run(lambda: group.settled, GIVES_UP_S, "a group of the consumer protocol")
            except BenchError as error:
                raise TimeoutError(str(error)) from None

    return join


def pipelined_describe_configs(target: Target) -> Callable[[], None]:
    """31 requests in one write, each of which names the broker as often as fits; what it asks for isn't there, so that
    the answers are small, and nothing but time keeps them from being made in one go."""
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configuration_keys": ["x"]}
    empty = len(frame_of(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": []}))
    one = len(frame_of(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]})) - empty
    count = (DESCRIBED_BYTES // DESCRIBED - empty) // one
    frame = frame_of(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource] * count})
    return target.exchange([frame] * DESCRIBED)


def _topics(target: Target) -> bytes:
    """A hundred topics, and the request that asks for them all."""
    for number in range(METADATA_TOPICS):
        target.create(f"topic-{number}")
    return frame_of(ApiKey.METADATA, 12, {"topics": None})


def pipelined_metadata(target: Target) -> Callable[[], None]:
    """Ten connections with thousands of requests in one write each; answers are read in turn."""
    frame = _topics(target) * (METADATA_REQUESTS // METADATA_CONNECTIONS)
    connections = [target.connect() for _ in range(METADATA_CONNECTIONS)]

    def ask() -> None:
        for connection in connections:
            connection.send_bytes(frame)
        for connection in connections:
            for _ in range(METADATA_REQUESTS // METADATA_CONNECTIONS):
                skip_answer(connection.socket)

    return ask


def never_reading(target: Target) -> Callable[[], None]:
    """200 connections that send what fits and take no answer."""
    frames = _topics(target) * NEVER_READING_REQUESTS
    connections = [target.connect() for _ in range(NEVER_READING)]

    def ask() -> None:
        until = time.monotonic() + NEVER_READING_S
        left = {connection: memoryview(frames) for connection in connections}
        for connection in connections:
            connection.socket.setblocking(False)
        while left and time.monotonic() < until:
            for connection, data in list(left.items()):
                try:
                    left[connection] = data[connection.socket.send(data) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise ClosedError(str(error)) from None
                if not left[connection]:
                    del left[connection]
            time.sleep(0.01)
        time.sleep(max(0.0, until - time.monotonic()))

    return ask


def parked_missing(target: Target) -> Callable[[], None]:
    """Three fetches wait for one partition, which is written to all the time, and name 199,999 that aren't there."""
    fields = fetch_fields("nowhere", range(MISSING_PARTITIONS), max_wait_ms=30_000, min_bytes=1 << 30)
    fields["topics"].insert(0, {"topic": "polite", "partitions": [{"partition": 0, "fetch_offset": 0}]})
    return _parked(target, frame_of(ApiKey.FETCH, 12, fields), PARKED_MISSING)


def parked_many(target: Target) -> Callable[[], None]:
    """Fifty fetches wait for 2,000 partitions that are there, and for the one that is written to."""
    target.create("many", MANY_PARTITIONS)
    fields = fetch_fields("many", range(MANY_PARTITIONS), max_wait_ms=30_000, min_bytes=1 << 30)
    fields["topics"].insert(0, {"topic": "polite", "partitions": [{"partition": 0, "fetch_offset": 0}]})
    return _parked(target, frame_of(ApiKey.FETCH, 12, fields), PARKED_MANY)


def _parked(target: Target, frame: bytes, count: int) -> Callable[[], None]:
    connections = [target.connect() for _ in range(count)]

    def park() -> None:
        for connection in connections:
            connection.send_bytes(frame)
        time.sleep(PARKED_S)

    return park


def metadata_makes_topics(target: Target) -> Callable[[], None]:
    topics = [{"name": f"made-{number}"} for number in range(MADE_BY_METADATA)]
    return target.exchange([frame_of(ApiKey.METADATA, 12, {"topics": topics, "allow_auto_topic_creation": True})])


def create_topics(target: Target) -> Callable[[], None]:
    topics = [
        {"name": f"made-{number}", "num_partitions": 1, "replication_factor": 1} for number in range(MADE_BY_CREATE)
    ]
    return target.exchange([frame_of(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 60_000})])


def fetch_sessions(target: Target) -> Callable[[], None]:
    """Nine sessions of made-up partitions; then somebody else asks for one."""
    fields = fetch_fields("nowhere", range(SESSION_PARTITIONS), session_id=0, session_epoch=0)
    opens = [target.exchange([frame_of(ApiKey.FETCH, 12, fields)]) for _ in range(SESSIONS)]
    other = target.connect()

    def open_all() -> None:
        for each in opens:
            each()
        answer = other.ask(ApiKey.FETCH, 12, fetch_fields("polite", range(10), session_id=0, session_epoch=0))
        target.extra["session_left"] = float(answer.session_id > 0)

    return open_all


def large_describe_configs(target: Target) -> Callable[[], None]:
    resource: dict[str, Any] = {"resource_type": TOPIC_RESOURCE, "resource_name": "polite", "configuration_keys": []}
    return target.exchange([frame_of(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource] * ELEMENTS})])


def large_offset_fetch(target: Target) -> Callable[[], None]:
    find_coordinator(target.connect(), "fetching")
    topics = [{"name": f"topic-{number}", "partition_indexes": [0]} for number in range(ELEMENTS // 2 - 1)]
    fields = {"groups": [{"group_id": "fetching", "topics": topics}]}
    return target.exchange([frame_of(ApiKey.OFFSET_FETCH, 8, fields)])


def large_offset_commit(target: Target) -> Callable[[], None]:
    target.create("committed", COMMITTED_PARTITIONS)
    find_coordinator(target.connect(), "committing")
    topic = {"name": "committed", "partitions": [_committed(index) for index in range(COMMITTED_PARTITIONS)]}
    topics = [topic] * (ELEMENTS // (COMMITTED_PARTITIONS + 1))
    return target.exchange([frame_of(ApiKey.OFFSET_COMMIT, 8, {"group_id": "committing", "topics": topics})])


def large_write_txn_markers(target: Target) -> Callable[[], None]:
    topics = [{"name": "polite", "partition_indexes": list(range(1, ELEMENTS - 1))}]
    marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": False, "topics": topics}
    return target.exchange([frame_of(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})])


def large_produce(target: Target) -> Callable[[], None]:
    records = [(index, None) for index in range(ELEMENTS - 1)]
    return target.exchange([frame_of(ApiKey.PRODUCE, 9, produce_fields("polite", records))])


def tags(target: Target) -> Callable[[], None]:
    """Metadata that names topics by id, each with tagged fields that nobody knows."""
    tagged = bytes(16) + b"\0" + _uvarint(TAGS) + b"\x40\0" * TAGS
    body = _uvarint(TAGGED_TOPICS + 1) + tagged * TAGGED_TOPICS + b"\0\0\0"
    return target.exchange([framed(ApiKey.METADATA, 12, body)])


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
