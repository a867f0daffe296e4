"""A disk that isn't mounted, or was replaced: a broker with several data folders, as its operator sees it."""

import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.reading import create_topic
from tests.served import Tidelog

PARTITIONS = 4
VALUES = sorted(f"{number}".encode() for number in range(40))


def served(tmp_path: Path) -> Tidelog:
    return Tidelog(Path(f"{tmp_path}/a,{tmp_path}/b"))


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number, value in enumerate(sorted(VALUES)):
        producer.produce("tide", value, partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def consume(bootstrap: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["tide"])
    found: list[bytes] = []
    while len(found) < len(VALUES):
        message = consumer.poll(20)
        assert message is not None, f"only {len(found)} records came"
        assert message.error() is None
        value = message.value()
        assert value is not None
        found.append(value)
    consumer.close()
    return sorted(found)


def test_a_folder_that_is_not_mounted_keeps_the_broker_from_starting_until_it_is(tmp_path: Path) -> None:
    broker = served(tmp_path)
    broker.output = tmp_path / "broker.log"
    with broker:
        create_topic(broker.bootstrap, "tide", PARTITIONS)
        produce(broker.bootstrap)
        broker.stop()
        (tmp_path / "b").rename(tmp_path / "elsewhere")
        (tmp_path / "b").mkdir()

        command = [sys.executable, "-m", "tidelog", "serve", "--listen", "127.0.0.1:0", "--data", str(broker.folder)]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert refused.returncode == 1
        assert f"{tmp_path}/b is empty" in refused.stderr
        assert "tidelog.log.dirs.lost=" in refused.stderr
        assert "Traceback" not in refused.stderr

        for left in (tmp_path / "b").iterdir():
            left.unlink()
        (tmp_path / "b").rmdir()
        (tmp_path / "elsewhere").rename(tmp_path / "b")
        broker.start()
        assert consume(broker.bootstrap) == VALUES
