"""One client that asks for much: no turn of the loop is long for it, and it is answered all the same.

Each asks a real broker, over a socket, for what once held everybody; what counts is the CPU time of the longest turn.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.apis.sim_broker import batch
from tests.raw import build, request_class, response_class
from tests.turns import WatchedBroker
from tidelog.wire.codec import decoder, encoder
from tidelog.wire.header import read_response_header, request_header
from tidelog.wire.keys import ApiKey


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WatchedBroker]:
    with WatchedBroker(tmp_path / "data") as made:
        yield made


def frame(key: ApiKey, version: int, fields: dict[str, Any], correlation_id: int = 1) -> bytes:
    body = encoder(request_class(key), version)(build(request_class(key), fields))
    whole = request_header(key, version, correlation_id, "much") + body
    return struct.pack(">i", len(whole)) + whole


class Client:
    """Frames out, answers in, over a blocking socket."""

    def __init__(self, broker: WatchedBroker) -> None:
        self.sock = socket.create_connection(("127.0.0.1", broker.port), timeout=60)

    def ask(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        self.sock.sendall(frame(key, version, fields))
        return self.answer(key, version)

    def answer(self, key: ApiKey, version: int) -> Any:
        data = self._take(struct.unpack(">i", self._take(4))[0])
        _, pos = read_response_header(data, 0, key, version)
        return decoder(response_class(key), version)(data, pos)[0]

    def _take(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.sock.recv(min(1 << 20, count - len(data)))
            assert piece, "the broker closed the connection"
            data += piece
        return bytes(data)


@contextmanager
def client(broker: WatchedBroker) -> Iterator[Client]:
    made = Client(broker)
    try:
        yield made
    finally:
        made.sock.close()


def make_topic(asking: Client, name: str, partitions: int = 1) -> None:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    made = asking.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 30_000})
    assert made.topics[0].error_code == 0


def fetch_fields(partitions: dict[str, range], wait_ms: int, **more: Any) -> dict[str, Any]:
    topics = [
        {"topic": topic, "partitions": [{"partition": index, "partition_max_bytes": 1 << 20} for index in indexes]}
        for topic, indexes in partitions.items()
    ]
    return {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": topics, **more}


def produce_fields(topic: str, index: int = 0) -> dict[str, Any]:
    return {
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": index, "records": bytes(batch(b"x"))}]}],
    }


def test_a_fetch_of_many_partitions_that_do_not_exist_is_not_looked_at_with_each_record(broker: WatchedBroker) -> None:
    with client(broker) as setting_up, client(broker) as much, client(broker) as polite:
        make_topic(setting_up, "tide", 2)
        with broker.watching() as seen:
            asked = fetch_fields({"tide": range(1, 2), "none": range(199_000)}, 60_000)
            much.sock.sendall(frame(ApiKey.FETCH, 12, asked))
            for _ in range(50):
                produced = polite.ask(ApiKey.PRODUCE, 9, produce_fields("tide")).responses[0].partition_responses[0]
                assert produced.error_code == 0
            setting_up.ask(ApiKey.PRODUCE, 9, produce_fields("tide", 1))
            answer = much.answer(ApiKey.FETCH, 12)
        assert {topic.topic: len(topic.partitions) for topic in answer.responses} == {"tide": 1, "none": 199_000}
        assert len(answer.responses[0].partitions[0].records) > 60
        seen.check()


def test_many_fetches_of_many_partitions_are_answered_in_turn(broker: WatchedBroker) -> None:
    with client(broker) as setting_up:
        make_topic(setting_up, "wide", 2000)
        many = [Client(broker) for _ in range(20)]
        asked = frame(ApiKey.FETCH, 12, fetch_fields({"wide": range(2000)}, 60_000))
        for each in many:
            each.sock.sendall(asked)
        while broker.call(lambda: broker.broker.services.replicas.get("wide", 1999).waiting_fetches) < 20:
            pass
        with broker.watching() as seen:
            setting_up.ask(ApiKey.PRODUCE, 9, produce_fields("wide", 1999))
            answers = [each.answer(ApiKey.FETCH, 12) for each in many]
        for each in many:
            each.sock.close()
        assert all(len(answer.responses[0].partitions) == 2000 for answer in answers)
        assert all(answer.responses[0].partitions[1999].records for answer in answers)
        seen.check()


def test_many_new_logs_that_roll_at_once_wait_for_the_disk_together(broker: WatchedBroker) -> None:
    """That a log was begun here has to be durable before its second segment: it is said of all of them at once."""
    with client(broker) as asking:
        topic = {"name": "tide", "num_partitions": 20, "replication_factor": 1}
        topic["configs"] = [{"name": "segment.bytes", "value": str(1 << 20)}]
        asking.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 30_000})
        parts = [{"index": index, "records": batch(bytes(600_000))} for index in range(20)]
        fields = {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": "tide", "partition_data": parts}]}
        asking.ask(ApiKey.PRODUCE, 9, fields)
        with broker.watching() as seen:
            answer = asking.ask(ApiKey.PRODUCE, 9, fields)
        assert {one.error_code for one in answer.responses[0].partition_responses} == {0}
        assert len(seen.syncs) < 10
