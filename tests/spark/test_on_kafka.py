"""The readers' tests on an Apache Kafka: this source is not for Tidelog's brokers alone."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tests.kafka.apache import ApacheKafka
from tests.kafka.jars import kafka_jars
from tests.spark import test_reader, test_stream_story

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


class Kafka:
    """What those tests use of Tidelog's broker."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self.bootstrap = kafka.bootstrap
        self._pid = kafka.pid

    def pause(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    kafka_jars()
    with ApacheKafka(tmp_path_factory.mktemp("apache") / "data") as kafka:
        yield Kafka(kafka)


topic: Any = test_reader.topic
table: Any = test_reader.table
for module in (test_reader, test_stream_story):
    globals().update({name: each for name, each in vars(module).items() if name.startswith("test_")})
