"""Load under which promises are tested: numbered records, a note of every acknowledgement and of everything shown."""

import contextlib
import itertools
import threading
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.batches import batches
from tests.raw import ClosedError, Connection
from tests.reading import LATEST, fetch, list_offset, stored

RECORD_BYTES = 100


def numbered(number: int) -> bytes:
    return f"{number:08d}".encode().ljust(RECORD_BYTES, b".")


class Sender:
    """An idempotent producer of confluent-kafka in a thread: number after number to each partition in turn."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **settings: Any) -> None:
        self.topic = topic
        self.partitions = partitions
        self.sent = 0
        self.acknowledged: dict[tuple[int, int], int] = {}
        """(partition, offset) -> number, for every record that the broker acknowledged."""
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": 1,
                # Larger batches, and librdkafka 2.16 keeps but one request of an idempotent producer in flight.
                "batch.num.messages": 1,
                "queue.buffering.max.messages": 300,
                "message.timeout.ms": 60_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "socket.timeout.ms": 3_000,
                "error_cb": self._on_error,
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Sender":
        self._thread.start()
        return self

    def finish(self, timeout_s: float = 60.0) -> None:
        """Send no more, wait for every answer, and check that each record was acknowledged."""
        self._stop.set()
        self._thread.join(10.0)
        left = self._producer.flush(timeout_s)
        assert not self.failures, self.failures[:3]
        assert left == 0, f"{left} records were not acknowledged in {timeout_s:.0f} s"
        assert len(self.acknowledged) == self.sent, f"{self.sent} sent, {len(self.acknowledged)} offsets acknowledged"

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(20):
                partition = self.sent % self.partitions
                with contextlib.suppress(BufferError):
                    self._producer.produce(
                        self.topic, numbered(self.sent), partition=partition, on_delivery=self._on_delivery
                    )
                    self.sent += 1
            self._producer.poll(0.002)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        place = (partition, offset)
        if place in self.acknowledged:
            self.failures.append(f"offset {offset} of partition {partition} was acknowledged twice")
        self.acknowledged[place] = int(value[:8])

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")


class Watcher:
    """Reads all the time, in a thread, and keeps what it was shown: every record by offset, every end it was told."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.shown: dict[tuple[int, int], bytes | None] = {}
        self.ends = dict.fromkeys(range(partitions), 0)
        self.complaints: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Watcher":
        self._thread.start()
        return self

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(20.0)
        assert not self.complaints, self.complaints[:3]

    def _run(self) -> None:
        next_offsets = dict.fromkeys(self.ends, 0)
        while not self._stop.is_set():
            try:
                with Connection(self.bootstrap, timeout_s=3.0) as connection:
                    while not self._stop.is_set():
                        for partition in self.ends:
                            self._look(connection, partition, next_offsets)
            except (ClosedError, OSError):
                self._stop.wait(0.01)
            except Exception as error:
                self.complaints.append(repr(error))
                return

    def _look(self, connection: Connection, partition: int, next_offsets: dict[int, int]) -> None:
        end = list_offset(connection, self.topic, LATEST, partition)
        if end < self.ends[partition]:
            self.complaints.append(f"partition {partition} ended at {self.ends[partition]}, now at {end}")
        self.ends[partition] = max(end, self.ends[partition])
        answer = fetch(connection, self.topic, next_offsets[partition], partition, wait_ms=5)
        if answer.error_code:
            self.complaints.append(f"Fetch at {next_offsets[partition]} failed with {answer.error_code}")
        for batch in batches(bytes(answer.records or b"")):
            for offset, _, value in batch.values():
                self.shown[partition, offset] = value
            next_offsets[partition] = batch.next_offset


def account_for(bootstrap: str, sender: Sender, watcher: Watcher | None = None) -> None:
    """Every acknowledged record at its offset, everything shown unchanged, nothing twice, order kept."""
    for partition in range(sender.partitions):
        there = stored(bootstrap, sender.topic, partition)
        numbers = [int((value or b"")[:8]) for _, value in there]
        assert numbers == sorted(set(numbers)), f"partition {partition}: {_disorder(numbers)}"
        by_offset = dict(there)
        for (where, offset), number in sender.acknowledged.items():
            if where == partition:
                assert by_offset.get(offset) == numbered(number), (
                    f"{number} was acknowledged at {offset} of partition {partition}; there is {by_offset.get(offset)}"
                )
        assert len(numbers) == len(range(partition, sender.sent, sender.partitions)), (
            f"partition {partition} holds {len(numbers)} records"
        )
        if watcher is not None:
            for (where, offset), value in watcher.shown.items():
                if where == partition:
                    assert by_offset.get(offset) == value, f"{offset} of partition {partition} was shown otherwise"
            assert len(there) >= watcher.ends[partition]


def _disorder(numbers: list[int]) -> str:
    for before, after in itertools.pairwise(numbers):
        if after <= before:
            return f"{after} stands behind {before}"
    return "in order"
