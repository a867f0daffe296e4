"""The disk is full: the protocol's own error, a clear line in the log, and the broker serves on."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batches import Batch, Sent
from tests.raw import Connection
from tests.reading import create_topic, stored
from tests.served import Tidelog
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

DISK_BYTES = 16 << 20
SPARE_BYTES = 4 << 20
RECORD = b"x" * 100_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs takes root")
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"a tmpfs can't be mounted here: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


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
