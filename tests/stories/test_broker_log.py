"""What a broker's log tells an operator: what was started, what recovery did, who changed what, a disk that is full."""

import json
import re
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.raw import Connection
from tests.reading import create_topic
from tests.served import Tidelog
from tests.stories.conftest import DISK_BYTES
from tests.stories.test_full_disk import RECORD, SPARE_BYTES, produce
from tidelog import __version__
from tidelog.wire.errors import ErrorCode

TORN = b"\x00\x00\x00\x00\x00\x00\x00\x03 torn in the middle of a write, too short for a batch header"


def lines(broker: Tidelog, text: str) -> list[str]:
    return [line for line in broker.said(100_000).splitlines() if text in line]


def test_a_start_says_what_was_started(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data", {"log.segment.bytes": "2097152"}) as broker:
        starting = broker.says(f"Tidelog {__version__}")
        assert str(tmp_path / "data") in starting
        assert "log.segment.bytes=2097152" in starting
        assert "num.partitions" not in starting, "what is a default isn't worth a word"
        serving = broker.says("cluster")
        meta = (tmp_path / "data" / "meta.properties").read_text()
        assert re.search(r"cluster\.id=(.+)", meta)[1] in serving  # type: ignore[index]
        assert f"PLAINTEXT://127.0.0.1:{broker.port}" in serving
        assert "there are no records yet" in serving


def test_a_clean_start_says_so(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "orders")
        with Connection(broker.bootstrap) as connection:
            assert produce(connection, "orders", b"kept") == (0, 0)
        broker.stop()
        broker.start()
        broker.says("the last stop was clean")
        assert lines(broker, "recovery") == []


def test_a_start_after_a_crash_says_what_recovery_did(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "orders")
        with Connection(broker.bootstrap) as connection:
            assert produce(connection, "orders", b"kept") == (0, 0)
        broker.kill()
        with open(tmp_path / "data" / "orders-0" / f"{0:020}.log", "ab") as segment:
            segment.write(TORN)
        broker.start()
        broker.says("the last stop was not clean")
        told = broker.says("recovery is done")
        assert "WARNING" in told
        assert re.search(r"\b1 of [\d,]+ partitions? ", told), told
        assert f"{len(TORN)} bytes" in told
        assert "orders-0" in told
        assert "from offset 1 on" in told
        assert re.search(r"\d s\b", told), "how long it took"


def test_administration_leaves_a_line_each(tmp_path: Path) -> None:
    """Who, from where, what; nothing of what was refused."""
    with Tidelog(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "night-shift"})
        admin.create_topics([NewTopic("orders", 3)])["orders"].result(10)
        assert admin.create_topics([NewTopic("orders", 3)])["orders"].exception(10) is not None
        admin.create_partitions([NewPartitions("orders", 4)])["orders"].result(10)
        change = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
        secret = ConfigEntry("ssl.key.password", "hunter2", incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[change])
        node = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[secret])
        for each in (topic, node):
            admin.incremental_alter_configs([each])[each].result(10)
        with Connection(broker.bootstrap) as connection:
            assert produce(connection, "orders", b"gone soon") == (0, 0)
        admin.delete_records([TopicPartition("orders", 0, 1)])[TopicPartition("orders", 0, 1)].result(10)
        offsets = ConsumerGroupTopicPartitions("billing", [TopicPartition("orders", 0, 1)])
        admin.alter_consumer_group_offsets([offsets])["billing"].result(10)
        admin.delete_consumer_groups(["billing"])["billing"].result(10)
        admin.delete_topics(["orders"])["orders"].result(10)
        told = lines(broker, "tidelog.admin")
    who = "by User:ANONYMOUS as night-shift from 127.0.0.1"
    assert [line.partition("tidelog.admin: ")[2] for line in told] == [
        f"topic orders was created with 3 partitions, {who}",
        f"topic orders has 4 partitions now, {who}",
        f"topic orders was altered: retention.ms=60000, {who}",
        f"broker 1 was altered: ssl.key.password, {who}",
        f"records of orders-0 below offset 1 were deleted, {who}",
        f"group billing was deleted, {who}",
        f"topic orders was deleted, {who}",
    ]
    assert "hunter2" not in broker.said(100_000)


def test_a_full_disk_is_one_error_and_one_line_when_it_is_over(small_disk: Path) -> None:
    spare = small_disk / "spare"
    spare.write_bytes(bytes(SPARE_BYTES))
    broker = Tidelog(small_disk / "data")
    broker.output = small_disk.parent / "broker.log"
    with broker:
        create_topic(broker.bootstrap, "grows")
        with Connection(broker.bootstrap) as connection:
            for _ in range(2 * DISK_BYTES // len(RECORD)):
                if produce(connection, "grows", RECORD)[0]:
                    break
            refused = [produce(connection, "grows", RECORD)[0] for _ in range(15)]
            assert set(refused) == {int(ErrorCode.KAFKA_STORAGE_ERROR)}
            full = lines(broker, "No space left")
            assert len([line for line in full if "grows-0" in line]) == 1, full
            assert " ERROR " in full[0]
            spare.unlink()
            for _ in range(3):
                assert produce(connection, "grows", RECORD)[0] == 0
            assert len(lines(broker, "grows-0: there is room again")) == 1


def test_debug_shows_who_comes_and_what_is_asked(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data", flags=["--log-level", "debug"]) as broker:
        create_topic(broker.bootstrap, "orders")
        assert lines(broker, "DEBUG tidelog.server: connection 1 from 127.0.0.1")
        assert re.search(r"DEBUG tidelog\.requests: CREATE_TOPICS v\d+ ", broker.said(1000))
        broker.says("connection 1 from 127.0.0.1 on PLAINTEXT is closed")


def test_a_log_in_json_has_one_object_a_line(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data", flags=["--log-format", "json"]) as broker:
        create_topic(broker.bootstrap, "orders")
        broker.stop()
        told = [json.loads(line) for line in broker.output.read_text().splitlines()]
    assert {"INFO"} == {each["level"] for each in told}
    created = next(each for each in told if each["logger"] == "tidelog.admin")
    assert created["message"].startswith("topic orders was created")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", created["time"])
