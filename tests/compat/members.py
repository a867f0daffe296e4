"""One face for three clients' consumers in groups of the classic protocol: each polls in a thread of its own."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

import kafka

DEADLINE_S = 30.0
SESSION_MS = 6000
HEARTBEAT_MS = 200
POLL_MS = 1000
"""kafka-python 3.0.12 forgets a join that is answered after its poll's timeout: the wait must be longer than a join."""


class Seen(NamedTuple):
    partition: int
    offset: int
    value: bytes


class Member:
    """A consumer in a thread. `assigned` is what it holds now, `given` and `taken` what its callbacks were told."""

    name: str

    def __init__(self, bootstrap: str, group: str, topic: str, *, instance: str | None = None, **options: Any) -> None:
        self.bootstrap, self.group, self.topic, self.instance, self.options = bootstrap, group, topic, instance, options
        self.assigned: set[int] = set()
        self.given: list[set[int]] = []
        self.taken: list[set[int]] = []
        self.seen: list[Seen] = []
        self.error: BaseException | None = None
        self.hang = threading.Event()
        """While it is set, nothing is polled."""
        self._stop = threading.Event()
        self._leave = True
        self._thread = threading.Thread(target=self._work, name=f"{self.name} {group}", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the group as a client does that is closed; a static member stays a member."""
        self.hang.clear()
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{self.name} did not stop"
        if self.error is not None:
            raise self.error

    def _work(self) -> None:
        try:
            self._consume()
        except BaseException as error:
            self.error = error

    def _consume(self) -> None:
        raise NotImplementedError

    @property
    def _goes_on(self) -> bool:
        while self.hang.is_set() and not self._stop.is_set():
            time.sleep(0.01)
        return not self._stop.is_set()

    def _given(self, partitions: set[int]) -> None:
        self.given.append(partitions)

    def _taken(self, partitions: set[int]) -> None:
        self.taken.append(partitions)


class ConfluentMember(Member):
    name = "confluent-kafka"

    def _consume(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "auto.commit.interval.ms": 100,
                "topic.metadata.refresh.interval.ms": 300,
                "partition.assignment.strategy": "range",
                **({} if self.instance is None else {"group.instance.id": self.instance}),
                **self.options,
            }
        )
        try:
            consumer.subscribe(
                [self.topic],
                on_assign=lambda _, parts: self._given({part.partition for part in parts}),
                on_revoke=lambda _, parts: self._taken({part.partition for part in parts}),
                on_lost=lambda _, parts: self._taken({part.partition for part in parts}),
            )
            while self._goes_on:
                message = consumer.poll(0.05)
                self.assigned = {part.partition for part in consumer.assignment()}
                if message is not None and message.error() is None:
                    self.seen.append(Seen(message.partition(), message.offset(), message.value()))
        finally:
            consumer.close()
            self.assigned = set()


class KafkaPythonMember(Member):
    name = "kafka-python"

    def _consume(self) -> None:
        member = self

        class Listener(kafka.ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: Any) -> None:
                member._given({part.partition for part in assigned})
                member.assigned = {part.partition for part in assigned}

            def on_partitions_revoked(self, revoked: Any) -> None:
                member._taken({part.partition for part in revoked})
                member.assigned = set()

        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_commit_interval_ms=100,
            metadata_max_age_ms=300,
            **self.options,
        )
        try:
            consumer.subscribe([self.topic], listener=Listener())
            while self._goes_on:
                found = consumer.poll(timeout_ms=POLL_MS)
                for part, records in found.items():
                    self.seen += [Seen(part.partition, record.offset, record.value) for record in records]
        finally:
            consumer.close()
            self.assigned = set()


class AiokafkaMember(Member):
    name = "aiokafka"

    def _consume(self) -> None:
        asyncio.run(self._consume_async())

    async def _consume_async(self) -> None:
        member = self

        class Listener(aiokafka.ConsumerRebalanceListener):
            async def on_partitions_assigned(self, assigned: Any) -> None:
                member._given({part.partition for part in assigned})

            async def on_partitions_revoked(self, revoked: Any) -> None:
                member._taken({part.partition for part in revoked})

        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_commit_interval_ms=100,
            metadata_max_age_ms=300,
            partition_assignment_strategy=[RangePartitionAssignor],
            **self.options,
        )
        await consumer.start()
        try:
            consumer.subscribe([self.topic], listener=Listener())
            while self._goes_on:
                found = await consumer.getmany(timeout_ms=50)
                self.assigned = {part.partition for part in consumer.assignment()}
                for part, records in found.items():
                    self.seen += [Seen(part.partition, record.offset, record.value or b"") for record in records]
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(consumer.stop(), 10)
            self.assigned = set()


MEMBERS: dict[str, type[Member]] = {kind.name: kind for kind in (ConfluentMember, KafkaPythonMember, AiokafkaMember)}


def until(holds: Callable[[], object], what: str, seconds: float = DEADLINE_S) -> None:
    """Wait for something that other threads bring about."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.01)


def until_shared(partitions: int, *members: Member, each: int = 0) -> None:
    """Every partition has one owner among the members, and every member at least `each`."""

    def is_shared() -> bool:
        for member in members:
            if member.error is not None:
                raise member.error
        held = [set(member.assigned) for member in members]
        return sorted(one for some in held for one in some) == list(range(partitions)) and min(map(len, held)) >= each

    until(is_shared, f"{partitions} partitions, one owner each")
