"""kill -9 in the middle of administration: topics made, deleted, made again, configured, emptied and written, and then?

Each client knows what was acknowledged, and of its last request that it may or may not have been done. After every
restart what was acknowledged holds: nothing deleted comes back, nothing made again shows what its forerunner had.
"""

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.batches import Batch, Sent
from tests.raw import ClosedError, Connection
from tests.reading import EARLIEST, list_offset, stored
from tests.served import Tidelog
from tidelog.wire.keys import ApiKey

SETTINGS = {
    "log.segment.bytes": "1048576",
    "log.initial.task.delay.ms": "1",
    "log.retention.check.interval.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "50",
}
CLIENTS = 4


class Topic:
    """What one client knows of its topic; `last` is what it asked for and heard nothing of."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made = 0
        self.exists = False
        self.values: list[bytes] = []
        self.start = 0
        self.setting: str | None = None
        self.last: tuple[str, Any] | None = None

    def begin_anew(self) -> None:
        self.exists, self.values, self.start, self.setting = True, [], 0, None
        self.made += 1


def work(bootstrap: str, topic: Topic, choose: random.Random, stop: threading.Event) -> None:
    """One request after the other, until the broker is gone."""
    try:
        with Connection(bootstrap) as connection:
            while not stop.is_set():
                step = choose.choice(("produce", "produce", "produce", "delete", "set", "empty"))
                _step(connection, topic, step if topic.exists else "create", choose)
    except (ClosedError, OSError):
        return


def _step(connection: Connection, topic: Topic, step: str, choose: random.Random) -> None:
    name = topic.name
    match step:
        case "create":
            topic.last = ("create", None)
            asked = {"name": name, "num_partitions": 1, "replication_factor": 1}
            answer = connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [asked], "timeout_ms": 5000}).topics[0]
            topic.begin_anew()
        case "delete":
            topic.last = ("delete", None)
            request = {"topic_names": [name], "timeout_ms": 5000}
            answer = connection.ask(ApiKey.DELETE_TOPICS, 3, request).responses[0]
            topic.exists = False
        case "produce":
            value = b"%d %d|" % (topic.made, len(topic.values)) + bytes(choose.choice((10, 10, 300_000)))
            topic.last = ("produce", value)
            data = {"index": 0, "records": Batch([Sent(value)]).encode()}
            request = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": name, "partition_data": [data]}]}
            answer = connection.ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0]
            assert answer.error_code or answer.base_offset == len(topic.values)
            topic.values.append(value)
        case "set":
            value = str(choose.randrange(10**7, 10**8))
            topic.last = ("set", value)
            config = {"name": "max.message.bytes", "config_operation": 0, "value": value}
            resource = {"resource_type": 2, "resource_name": name, "configs": [config]}
            answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}).responses[0]
            topic.setting = value
        case _:
            offset = choose.randint(topic.start, len(topic.values))
            topic.last = ("empty", offset)
            part = {"partition_index": 0, "offset": offset}
            request = {"topics": [{"name": name, "partitions": [part]}], "timeout_ms": 5000}
            answer = connection.ask(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0]
            topic.start = offset
    assert answer.error_code == 0, f"{step} {name}: {answer.error_code}"
    topic.last = None


def check(bootstrap: str, topic: Topic) -> None:
    """All that was acknowledged holds; what hangs in the air is settled by what is found."""
    kind, value = topic.last or ("", None)
    topic.last = None
    with Connection(bootstrap) as connection:
        known = [t.name for t in connection.ask(ApiKey.METADATA, 9, {"topics": None}).topics]
        exists = topic.name in known
        if kind == "create" and exists:
            topic.begin_anew()
        assert exists == topic.exists or kind in ("create", "delete")
        topic.exists = exists
        if not exists:
            return
        start = list_offset(connection, topic.name, EARLIEST)
        assert start == topic.start or (kind, value) == ("empty", start)
        found = [value for offset, value in stored(bootstrap, topic.name) if offset >= start]
        if kind == "produce" and len(found) == len(topic.values) - start + 1:
            topic.values.append(value)
        assert found == topic.values[start:]
        resource = {"resource_type": 2, "resource_name": topic.name, "configuration_keys": ["max.message.bytes"]}
        config = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results[0].configs[0]
        setting = config.value if config.config_source == 1 else None
        assert setting == topic.setting or (kind, value) == ("set", setting)
        topic.start, topic.setting = start, setting


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_what_was_acknowledged_holds_after_every_kill(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    topics = [Topic(f"t{number}") for number in range(CLIENTS)]
    with Tidelog(tmp_path / "data", SETTINGS) as broker:
        for _ in range(5):
            stop = threading.Event()
            clients = [
                threading.Thread(target=work, args=(broker.bootstrap, topic, random.Random(choose.random()), stop))
                for topic in topics
            ]
            for client in clients:
                client.start()
            time.sleep(choose.uniform(0.1, 0.6))  # the moment of the kill
            broker.kill()
            stop.set()
            for client in clients:
                client.join()
            broker.start()
            for topic in topics:
                check(broker.bootstrap, topic)
        assert "offline" not in broker.said(1000)
        assert sum(topic.made for topic in topics) > CLIENTS
