"""Real members on a folder that Tidelog and Apache Kafka take turns on: each record is processed once, by whichever.

Members of both protocols read under one broker and leave; those that come under the next go on where they stopped.
A compacted topic lies beside them. Kafka's own tool tells the same offsets from both.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.apache import ApacheKafka, tool
from tests.reading import create_topic
from tests.served import Tidelog, free_port
from tests.stories.groups.band import QUICK_GROUPS, Band

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
PROTOCOLS = ("confluent-classic", "confluent-consumer")


class Turns:
    """The folder, and the port that whoever has it serves on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def tidelog(self) -> Iterator[None]:
        with Tidelog(self.folder, {"node.id": "1", **QUICK_GROUPS}, port=self.port) as broker:
            yield
            broker.stop()

    @contextmanager
    def kafka(self) -> Iterator[None]:
        with ApacheKafka(self.folder, QUICK_GROUPS, node_id=1, port=self.port) as broker:
            yield
            broker.stop()


def a_turn(bands: list[Band], turn: str) -> None:
    """Two members of each group process what is written, and leave."""
    for band in bands:
        members = [band.join(f"{turn}-{place}") for place in range(2)]
        band.write(40)
        band.settle(*members, each=2)
        band.write(40)
        band.processed()
        for member in members:
            member.leave()


def told_offsets(bootstrap: str, band: Band) -> dict[int, int]:
    """What `kafka-consumer-groups --describe` tells: partition -> committed offset."""
    at = ("--bootstrap-server", bootstrap, "--timeout", "30000")
    done = tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", band.group)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(band.group)]
    assert rows, done.stdout + done.stderr
    return {int(row[2]): int(row[3]) for row in rows}


def write_keys(bootstrap: str, round_number: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(200):
        producer.produce("compacted", b"%d" % round_number, b"key-%d" % (number % 10))
    assert producer.flush(20) == 0


@pytest.mark.parametrize("first", ["tidelog", pytest.param("kafka", marks=pytest.mark.long)])
def test_members_go_on_where_those_before_them_stopped(jars: Path, tmp_path: Path, first: str) -> None:
    turns = Turns(tmp_path / "data")
    second = "kafka" if first == "tidelog" else "tidelog"
    bands: list[Band] = []
    for number, name in enumerate((first, second, first)):
        with getattr(turns, name)():
            if not bands:
                create_topic(turns.bootstrap, "compacted", 1, COMPACTED)
                bands = [Band(turns.bootstrap, client) for client in PROTOCOLS]
            write_keys(turns.bootstrap, number)
            a_turn(bands, f"turn{number}")
            for band in bands:
                ends = {partition: offset for (_, partition), offset in band.history.last_committed().items()}
                assert told_offsets(turns.bootstrap, band) == ends
    for band in bands:
        for member in band.members:
            member.end()
        band.check(once=True)
