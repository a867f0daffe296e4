"""Records that the disk doesn't give back: their partition says so, and everything else is served as before."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.batches import batches
from tests.raw import Connection
from tests.reading import create_topic, fetch
from tests.served import Tidelog
from tidelog.wire.errors import ErrorCode

SMALL, LARGE = 1_000, 100_000
LOG = "00000000000000000000.log"


def fill(broker: Tidelog, topic: str, size: int, count: int) -> list[bytes]:
    create_topic(broker.bootstrap, topic)
    values = [(b"%06d" % number).ljust(size, b".") for number in range(count)]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    for value in values:
        producer.produce(topic, value, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0
    return values


def consume(broker: Tidelog, topics: list[str], wanted: dict[str, int]) -> tuple[dict[str, list[bytes]], set[int]]:
    """What each topic gave until it had as many as are `wanted`, and the errors that were told meanwhile."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "fetch.error.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 20,
            "max.partition.fetch.bytes": 300_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
    found: dict[str, list[bytes]] = {topic: [] for topic in topics}
    errors: set[int] = set()
    for _ in range(3000):
        if all(len(found[topic]) >= count for topic, count in wanted.items()):
            break
        message = consumer.poll(0.01)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            errors.add(error.code())
            continue
        found[message.topic() or ""].append(message.value() or b"")
    consumer.close()
    return found, errors


def told(connection: Connection, topic: str, offset: int) -> tuple[int, list[bytes | None]]:
    """Error code, and the values of the records that one fetch gives."""
    answer = fetch(connection, topic, offset)
    data = bytes(answer.records or b"")
    return answer.error_code, [value for batch in batches(data) for _, _, value in batch.values()]


@pytest.fixture
def bad_disk(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path / "data", module="tests.stories.bad_sectors") as broker:
        yield broker


@pytest.mark.parametrize(("size", "count"), [(SMALL, 200), (LARGE, 30)], ids=["small", "large"])
def test_a_bad_sector_costs_the_records_in_it(bad_disk: Tidelog, size: int, count: int) -> None:
    values = fill(bad_disk, "bad", size, count)
    good = fill(bad_disk, "good", SMALL, 50)
    each = (bad_disk.folder / "bad-0" / LOG).stat().st_size // count
    broken = count // 2
    (bad_disk.folder / "bad").write_text(f"bad-0/{LOG} {each * broken + 500} 100")

    found, _ = consume(bad_disk, ["bad", "good"], {"bad": broken, "good": len(good)})
    assert found["good"] == good, "others have all of theirs"
    assert found["bad"] == values[:broken], "all that comes before"

    producer = Producer({"bootstrap.servers": bad_disk.bootstrap})
    producer.produce("bad", b"more", partition=0)
    assert producer.flush(30) == 0
    with Connection(bad_disk.bootstrap) as connection:
        for _ in range(3):
            assert told(connection, "bad", broken) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        code, behind = told(connection, "bad", broken + 1)
        assert (code, behind[:2]) == (0, values[broken + 1 : broken + 3]), "and behind"
    said = [line for line in bad_disk.said(400).splitlines() if " ERROR " in line or "can't be read" in line]
    alarms = [line for line in said if f"bad-0: offset {broken} can't be read" in line]
    assert len(alarms) == 1, said
    assert f"bad-0/{LOG}" in alarms[0]
    assert "ERROR" in alarms[0]

    (bad_disk.folder / "bad").unlink()  # a cable that was put in again
    with Connection(bad_disk.bootstrap) as connection:
        deadline = time.monotonic() + 60  # the disk is asked again now and then
        while (answer := told(connection, "bad", broken))[0] and time.monotonic() < deadline:
            time.sleep(0.1)
        assert answer[1][0] == values[broken]


@pytest.mark.parametrize(("size", "count"), [(SMALL, 3000), (LARGE, 30)], ids=["small", "large"])
def test_a_file_that_somebody_made_shorter_ends_no_broker(tidelog: Tidelog, size: int, count: int) -> None:
    fill(tidelog, "bad", size, count)
    good = fill(tidelog, "good", SMALL, 50)
    consume(tidelog, ["bad"], {"bad": count})  # it is mapped now
    log = tidelog.folder / "bad-0" / LOG
    os.truncate(log, 8192)

    found, errors = consume(tidelog, ["bad", "good"], {"good": len(good)})
    assert found["good"] == good
    with Connection(tidelog.bootstrap) as connection:
        for offset in (0, count // 2, count - 1):
            code, _ = told(connection, "bad", offset)
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert told(connection, "good", 0)[0] == 0
    assert errors <= {KafkaError._TRANSPORT, KafkaError.KAFKA_STORAGE_ERROR, KafkaError._ALL_BROKERS_DOWN}
    offline = [line for line in tidelog.said(400).splitlines() if "bad-0 went offline" in line]
    assert len(offline) == 1, tidelog.said()
    assert str(log) in offline[0]
    assert "ERROR" in offline[0]
