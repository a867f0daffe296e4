"""The embedded broker: starts, stops, dies and comes back as told, and never outlives the test."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka
import pytest

from tidelog.client import Producer, read
from tidelog.testing import Broker, BrokerError


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [message.value for message in read(broker.bootstrap, topic, stop_at_end=True)]


def answers(broker: Broker) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((broker.host, broker.port)) == 0


def test_with_broker_gives_an_address_that_clients_use() -> None:
    with Broker() as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("t", b"hello")
        assert values(broker, "t") == [b"hello"]
        folder = broker.data
        assert folder.is_dir()
    assert not broker.running
    assert not folder.exists()


def test_what_was_acknowledged_survives_a_stop_and_kill_9() -> None:
    with Broker() as broker:
        address = broker.bootstrap
        with Producer(broker.bootstrap) as producer:
            producer.send("t", b"1")
        broker.restart()
        with Producer(broker.bootstrap) as producer:
            producer.send("t", b"2")
        broker.kill()
        assert not answers(broker)
        broker.start()
        assert broker.bootstrap == address
        assert values(broker, "t") == [b"1", b"2"]


def test_a_paused_broker_accepts_and_does_not_answer() -> None:
    with Broker() as broker:
        broker.pause()
        assert answers(broker)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        with pytest.raises(confluent_kafka.KafkaException):
            admin.list_topics(timeout=0.3)
        broker.resume()
        assert admin.list_topics(timeout=10).brokers


def test_a_paused_broker_can_be_stopped() -> None:
    with Broker() as broker:
        broker.pause()
        broker.stop()
        assert not broker.running


def test_settings_come_by_kafkas_names_or_by_keyword(tmp_path: Path) -> None:
    with Broker({"num.partitions": 3}, data=tmp_path / "kept", auto_create_topics_enable=True) as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("t", b"x")
        listed = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10)
        assert len(listed.topics["t"].partitions) == 3
    assert (tmp_path / "kept" / "meta.properties").exists()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    wrong = Broker(no_such_setting=1)
    with (
        pytest.raises(BrokerError, match=r"exit code 2 before it was ready(?s:.*)Unknown setting no.such.setting"),
        wrong,
    ):
        pass
    assert not wrong.data.parent.exists()
    second = Broker(data=tmp_path)
    with Broker(data=tmp_path), pytest.raises(BrokerError, match="is in use by another broker"), second:
        pass


def test_a_broker_that_is_not_running_says_so() -> None:
    broker = Broker()
    with pytest.raises(BrokerError, match="not running"):
        broker.stop()
    broker.close()


def test_the_broker_dies_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import os, signal; from tidelog.testing import Broker; broker = Broker(data=%r); broker.start(); "
        "print(broker.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run([sys.executable, "-c", script % str(tmp_path)], capture_output=True, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    child = int(parent.stdout)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
        if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.01)
    else:
        assert not os.path.exists(f"/proc/{child}"), "the broker outlived the process that started it"


def test_pytest_finds_the_fixture_by_itself(tidelog_broker: Broker) -> None:
    with Producer(tidelog_broker.bootstrap) as producer:
        producer.send("fixture", b"found")
    assert b"found" in values(tidelog_broker, "fixture")
