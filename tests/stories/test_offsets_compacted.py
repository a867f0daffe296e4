"""`__consumer_offsets` is compacted while groups commit: it stays small, and no committed offset goes back."""

import time
from pathlib import Path

from tests.raw import Connection
from tests.reading import create_topic
from tests.served import Tidelog
from tests.stories.test_offsets_survive import TOPIC, Group, ask
from tidelog.wire.keys import ApiKey

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.initial.task.delay.ms": "1",
    "log.segment.delete.delay.ms": "1",
    "tidelog.durability": "os",
}
COMMITTED_BYTES = 5_000_000
PARTITIONS = 1000
WAIT_S = 30.0


def commit(group: Group, connection: Connection, times: int) -> int:
    """A thousand partitions at once, again and again; how many bytes of records that comes to, at least."""
    for _ in range(times):
        group.asked = group.acknowledged + 1
        partitions = [{"partition_index": index, "committed_offset": group.asked} for index in range(PARTITIONS)]
        fields = {"group_id": group.name, "topics": [{"name": TOPIC, "partitions": partitions}]}
        ask(connection, ApiKey.OFFSET_COMMIT, 8, fields)
        group.acknowledged = group.asked
    return times * PARTITIONS * 60


def test_the_offsets_topic_stays_small_and_right(tmp_path: Path) -> None:
    groups = [Group(f"group-{number}") for number in range(3)]
    broker = Tidelog(tmp_path / "data", SETTINGS).start()
    try:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        with Connection(broker.bootstrap) as connection:
            connection.ask(ApiKey.FIND_COORDINATOR, 3, {"key": groups[0].name, "key_type": 0})
            written = 0
            while written < COMMITTED_BYTES:
                written += sum(commit(group, connection, 5) for group in groups)
            folder = broker.folder / "__consumer_offsets-0"
            deadline = time.monotonic() + WAIT_S
            while sum(path.stat().st_size for path in folder.glob("*.log")) > written / 2:
                assert time.monotonic() < deadline, broker.said()
                time.sleep(0.05)
        for end in (broker.kill, broker.stop):
            end()
            broker.start()
            with Connection(broker.bootstrap) as connection:
                for group in groups:
                    group.check(connection)
        assert "offline" not in broker.said(1000)
    finally:
        if broker.process is not None:
            broker.kill()
