"""A broker that is killed again and again while it compacts: each key keeps the last value that was acknowledged."""

import random
import time
from pathlib import Path

from tests.batches import Batch, Producer, Sent
from tests.raw import ClosedError, Connection
from tests.reading import LATEST, create_topic, list_offset, stored_batches
from tests.served import Tidelog
from tidelog.wire.keys import ApiKey

SETTINGS = {
    "log.cleaner.backoff.ms": "1",
    "log.initial.task.delay.ms": "1",
    "log.flush.offset.checkpoint.interval.ms": "20",
    "log.segment.delete.delay.ms": "20",
}
TOPIC = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "50",
    "segment.ms": "10",
}
KEYS = [b"key%d" % n for n in range(12)]
KILLS = 6
PRODUCER_ID = 4_000


class Writer:
    """Sends one record after the other; knows what was acknowledged, and of the last one that it may be there."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.sequence = 0
        self.table: dict[bytes, bytes | None] = {}
        self.unsure: tuple[bytes, bytes | None] | None = None
        self.clock_ms = int(time.time() * 1000) - 3_600_000

    def write(self, bootstrap: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        try:
            with Connection(bootstrap) as connection:
                while time.monotonic() < deadline:
                    self._send(connection)
        except (ClosedError, OSError):
            return

    def _send(self, connection: Connection) -> None:
        """A record that was perhaps written is sent again: its sequence tells."""
        if self.unsure is None:
            value = None if self.choose.random() < 0.2 else b"%d" % self.sequence
            self.unsure = self.choose.choice(KEYS), value
        key, value = self.unsure
        self.clock_ms += self.choose.choice((0, 0, 11))
        batch = Batch(
            [Sent(value, key=key)], producer=Producer(PRODUCER_ID, 0, self.sequence), base_timestamp=self.clock_ms
        )
        parts = [{"index": 0, "records": batch.encode()}]
        fields = {"acks": -1, "timeout_ms": 10_000, "topic_data": [{"name": "compacted", "partition_data": parts}]}
        answer = connection.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0]
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        assert answer.base_offset == self.sequence, "nothing twice, nothing lost"
        self.table[key] = value
        self.sequence += 1
        self.unsure = None


def read(bootstrap: str) -> tuple[dict[bytes | None, bytes | None], int]:
    """The last value of each key, and how many records there are."""
    table: dict[bytes | None, bytes | None] = {}
    count = 0
    with Connection(bootstrap) as connection:
        for batch in stored_batches(connection, "compacted"):
            assert batch.crc_is_right
            for _, key, value in batch.values():
                table[key] = value
                count += 1
    return table, count


def alike(found: dict[bytes | None, bytes | None], writer: Writer) -> bool:
    """Tombstones may be there or not; the last record that nobody acknowledged, too."""
    wanted = {key: value for key, value in writer.table.items() if value is not None}
    seen = {key: value for key, value in found.items() if value is not None}
    if seen == wanted or writer.unsure is None:
        return seen == wanted
    key, value = writer.unsure
    return seen == {name: one for name, one in {**wanted, key: value}.items() if one is not None}


def test_kills_in_the_middle_of_compaction(tmp_path: Path) -> None:
    writer = Writer(8)
    broker = Tidelog(tmp_path / "data", SETTINGS).start()
    compacted = False
    try:
        create_topic(broker.bootstrap, "compacted", 1, TOPIC)
        for _ in range(KILLS):
            writer.write(broker.bootstrap, writer.choose.uniform(0.3, 0.8))
            broker.kill()
            broker.start()
            found, count = read(broker.bootstrap)
            assert alike(found, writer), broker.said()
            compacted = compacted or count < writer.sequence // 2
        writer.write(broker.bootstrap, 0.3)
        broker.stop()
        broker.start()
        with Connection(broker.bootstrap) as connection:
            assert list_offset(connection, "compacted", LATEST) == writer.sequence
        assert alike(read(broker.bootstrap)[0], writer)
        assert compacted, broker.said()
        assert "offline" not in broker.said(1000)
        assert "can't be compacted" not in broker.said(1000)
    finally:
        if broker.process is not None:
            broker.kill()
