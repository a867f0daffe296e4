"""kill -9 just when retention lets go of everything: no transaction hangs, and nobody is out of order."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.reading import create_topic
from tests.served import Tidelog
from tidelog.log.checkpoints import RECOVERY_POINT

TOPIC, PARTITIONS = "short", 120
SETTINGS = {
    "log.initial.task.delay.ms": "1",
    "log.retention.check.interval.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "100",
}


@pytest.fixture
def tidelog(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path / "data", SETTINGS) as broker:
        yield broker


def keep(bootstrap: str, retention_ms: int) -> None:
    """Set how long records are kept."""
    entry = ConfigEntry("retention.ms", str(retention_ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def write(producer: Producer, value: bytes) -> None:
    """One record to each partition, and all of them acknowledged."""
    failures: list[str] = []

    def told(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for partition in range(PARTITIONS):
        producer.produce(TOPIC, value, partition=partition, on_delivery=told)
    assert producer.flush(60) == 0
    assert failures == []


def saved(folder: Path) -> dict[int, int]:
    """The recovery points of the topic's partitions that would survive a kill."""
    file = folder / RECOVERY_POINT
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    return {int(line.split()[1]): int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} ")}


def until_saved(folder: Path, offset: int) -> None:
    deadline = time.monotonic() + 60
    while not all(saved(folder).get(partition, 0) >= offset for partition in range(PARTITIONS)):
        assert time.monotonic() < deadline, f"no recovery point at {offset}: {saved(folder)}"
        time.sleep(0.02)


def until_segments_go(folder: Path, least: int) -> None:
    """Until so many partitions have let go of their first segment."""
    paths = [folder / f"{TOPIC}-{partition}" / f"{0:020d}.log" for partition in range(PARTITIONS)]
    deadline = time.monotonic() + 60
    while sum(not path.exists() for path in paths) < least:
        assert time.monotonic() < deadline, "retention never came"


def committed(bootstrap: str, value: bytes) -> set[int]:
    """The partitions in which a reader of committed records finds this value, within half a minute."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found = set[int]()
    deadline = time.monotonic() + 30
    try:
        while len(found) < PARTITIONS and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None and message.value() == value:
                partition = message.partition()
                assert partition is not None
                found.add(partition)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("least", [1, PARTITIONS // 2])
def test_nothing_hangs_and_nobody_is_out_of_order(tidelog: Tidelog, least: int) -> None:
    create_topic(tidelog.bootstrap, TOPIC, PARTITIONS, {"retention.ms": "-1"})
    ended = Producer({"bootstrap.servers": tidelog.bootstrap, "transactional.id": "ends"})
    steady = Producer(
        {"bootstrap.servers": tidelog.bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 100}
    )
    ended.init_transactions(30)
    ended.begin_transaction()
    write(ended, b"open")
    write(steady, b"before")
    until_saved(tidelog.folder, 2)
    ended.commit_transaction(30)
    write(steady, b"behind")
    keep(tidelog.bootstrap, 1)
    until_segments_go(tidelog.folder, least)
    tidelog.kill()
    tidelog.settings["log.initial.task.delay.ms"] = "1000000000"  # what is written now stays
    tidelog.start()
    keep(tidelog.bootstrap, -1)
    write(steady, b"afterwards")
    assert committed(tidelog.bootstrap, b"afterwards") == set(range(PARTITIONS))
