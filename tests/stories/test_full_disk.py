"""The disk is full: the protocol's own error, a clear line in the log, and the broker serves on."""

import os
import time
from contextlib import suppress
from pathlib import Path

from click.testing import CliRunner

from tests.batches import Batch, Sent
from tests.raw import Connection
from tests.reading import create_topic, stored
from tests.served import Tidelog
from tests.stories.conftest import DISK_BYTES
from tidelog.cli.app import app
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SPARE_BYTES = 4 << 20
RECORD = b"x" * 100_000


def produce(connection: Connection, topic: str, value: bytes) -> tuple[int, int]:
    """(error code, base offset)"""
    data = Batch([Sent(value)]).encode()
    partition = {"index": 0, "records": data}
    fields = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": topic, "partition_data": [partition]}]}
    answer = connection.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def test_a_full_disk_is_an_error_and_not_the_end(small_disk: Path) -> None:
    spare = small_disk / "spare"
    spare.write_bytes(bytes(SPARE_BYTES))
    broker = Tidelog(small_disk / "data")
    broker.output = small_disk.parent / "broker.log"
    with broker:
        create_topic(broker.bootstrap, "grows")
        with Connection(broker.bootstrap) as connection:
            acknowledged = 0
            for _ in range(2 * DISK_BYTES // len(RECORD)):
                error, offset = produce(connection, "grows", RECORD)
                if error:
                    break
                assert offset == acknowledged
                acknowledged += 1
            assert error == ErrorCode.KAFKA_STORAGE_ERROR
            assert acknowledged > 50
            error, _ = produce(connection, "grows", RECORD)
            assert error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            topics = {"topics": None, "allow_auto_topic_creation": False}
            answer = connection.ask(ApiKey.METADATA, 9, topics)
            assert "grows" in [topic.name for topic in answer.topics]
            assert "No space left" in broker.said()
            assert [offset for offset, _ in stored(broker.bootstrap, "grows")] == list(range(acknowledged))
            spare.unlink()
            assert produce(connection, "grows", RECORD) == (0, acknowledged), "it goes on once there is room"
        broker.kill()
        broker.start()
        there = stored(broker.bootstrap, "grows")
        assert [offset for offset, _ in there] == list(range(acknowledged + 1))
        assert {value for _, value in there} == {RECORD}


def test_topics_made_after_a_large_change_was_cut_off_are_kept(small_disk: Path) -> None:
    """The disk is full in the middle of a change that takes several batches of the metadata log."""
    spare, filling = small_disk / "spare", small_disk / "filling"
    broker = Tidelog(small_disk / "data")
    broker.output = small_disk.parent / "broker.log"
    with broker:
        create_topic(broker.bootstrap, "before")
        spare.write_bytes(bytes(SPARE_BYTES))
        free = os.statvfs(small_disk)
        filling.write_bytes(bytes(free.f_bavail * free.f_frsize - LARGE_CHANGE_BYTES * 3 // 4))
        with Connection(broker.bootstrap) as connection:
            error, message = change_settings(connection)
            assert error == ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left" in message
            spare.unlink()
            create_topic(broker.bootstrap, "since")
            assert produce(connection, "since", b"kept") == (0, 0)
            filling.unlink()
            assert change_settings(connection) == (0, "")
            create_topic(broker.bootstrap, "later")
        said = broker.said()
        assert "a metadata change was cut off after" in said
        assert "the metadata can't be changed: KAFKA_STORAGE_ERROR" in said
        broker.stop()
        broker.start()
        with Connection(broker.bootstrap) as connection:
            answer = connection.ask(ApiKey.METADATA, 9, {"topics": None, "allow_auto_topic_creation": False})
            assert {topic.name for topic in answer.topics} == {"before", "since", "later"}
        assert [value for _, value in stored(broker.bootstrap, "since")] == [b"kept"]


LARGE_CHANGE_BYTES = 60 * 32_000


def change_settings(connection: Connection) -> tuple[int, str]:
    """Many long settings that the broker keeps and doesn't know; (error code, message)"""
    configs = [{"name": f"filling.{number}", "value": "x" * 32_000} for number in range(60)]
    resource = {"resource_type": 4, "resource_name": "1", "configs": configs}
    answer = connection.ask(ApiKey.ALTER_CONFIGS, 2, {"resources": [resource], "validate_only": False}).responses[0]
    return answer.error_code, answer.error_message or ""


def test_a_trim_that_cannot_be_noted_says_what_to_do_and_then_works(small_disk: Path) -> None:
    """Another program took the last byte."""
    filling = small_disk / "filling"
    settings = {"log.segment.bytes": "1048576", "log.segment.delete.delay.ms": "0"}
    broker = Tidelog(small_disk / "data", settings)
    broker.output = small_disk.parent / "broker.log"
    with broker:
        create_topic(broker.bootstrap, "grows")
        with Connection(broker.bootstrap) as connection:
            while not produce(connection, "grows", RECORD)[0]:
                pass
            with suppress(OSError), open(filling, "wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
            trim = ["topic", "trim", "grows", "--before", "end", "--yes", "--bootstrap", broker.bootstrap]
            refused = CliRunner().invoke(app, trim)
            assert refused.exit_code == 1
            assert "full to the last byte" in refused.output
            filling.unlink()
            assert CliRunner().invoke(app, trim).exit_code == 0
            deadline = time.monotonic() + 30
            while produce(connection, "grows", RECORD)[0]:
                assert time.monotonic() < deadline
