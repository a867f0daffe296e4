"""A group that was upgraded and can't go back: when its KIP-848 consumers are gone, classic ones read everything."""

import time
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.served import Tidelog

DEADLINE_S = 40
SETTINGS = {
    "group.consumer.migration.policy": "upgrade",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


def until(consumers: list[Consumer], counts: list[int]) -> None:
    """Poll until each has so many partitions."""
    deadline = time.monotonic() + DEADLINE_S
    while [len(consumer.assignment()) for consumer in consumers] != counts:
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            consumer.poll(0.05)


def test_when_the_last_consumer_of_the_new_protocol_closes_the_classic_one_has_all(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data", SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("tides", 4, 1)])["tides"].result(DEADLINE_S)
        shared = {"bootstrap.servers": broker.bootstrap, "group.id": "crew", "log_level": 2}
        classic = {"heartbeat.interval.ms": 300, "partition.assignment.strategy": "cooperative-sticky"}
        old = Consumer({**shared, **classic})
        old.subscribe(["tides"])
        until([old], [4])
        new = Consumer({**shared, "group.protocol": "consumer"})
        new.subscribe(["tides"])
        until([old, new], [2, 2])
        new.close()
        until([old], [4])
        old.close()
