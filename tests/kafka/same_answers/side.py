"""One of the two brokers that a script is played to, and the transcript of its answers.

A script is a function `(side, rng)`: it is played once to each broker with the same seed, so ids that a broker chose
(topics', producers') flow from its own answers into its own requests. The transcripts are compared afterwards.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.kafka.same_answers.normalise import Normaliser
from tests.raw import ClosedError, Connection
from tidelog.wire.keys import RANGES, ApiKey

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
CONSUMER, DEBUGGING_CONSUMER = -1, -2

BARRIER = "barrier"
SETTLE_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 5.0
COORDINATOR_LOAD_IN_PROGRESS = 14
CHANGES = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
}


@dataclass(slots=True)
class Step:
    """A request in a few words, and its answer made comparable."""

    label: str
    key: int
    answer: Any


class Side:
    """A broker under comparison. Everything asked through `ask` stands in `transcript`; `quietly` leaves no trace."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.transcript: list[Step] = []
        self.asked: set[tuple[int, int]] = set()
        self.normaliser = Normaliser()
        self._barrier = 0
        self._connection: Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.bootstrap, timeout_s=ANSWER_TIMEOUT_S)
        return self._connection

    def ask(self, key: ApiKey, version: int, fields: Mapping[str, Any] | None = None, note: str = "") -> Any:
        """Ask, note the answer down, and return it as it came; None where the broker closed the connection instead."""
        label = f"{key.name} v{version} {note}".rstrip()
        self.asked.add((key, version))
        fields = fields or {}
        try:
            response = self.connection.ask(key, version, fields)
            while key == ApiKey.INIT_PRODUCER_ID and response.error_code == COORDINATOR_LOAD_IN_PROGRESS:
                response = self.connection.ask(key, version, fields)
        except (ClosedError, TimeoutError) as error:
            self.close()
            self.transcript.append(Step(label, key, "closed" if isinstance(error, ClosedError) else "no answer"))
            return None
        self.transcript.append(Step(label, key, self.normaliser.response(key, response)))
        changes = key in CHANGES and not fields.get("validate_only")
        if changes or (key == ApiKey.METADATA and version >= 4 and fields.get("allow_auto_topic_creation")):
            self.settle()
        return response

    def ask_together(self, requests: Sequence[tuple[ApiKey, int, Mapping[str, Any]]], note: str = "") -> list[Any]:
        """Send all in one write, then note the answers down as they come; those to acks=0 don't."""
        answers: list[Any] = []
        ids = self.connection.send_together(requests)
        for number, ((key, version, fields), correlation_id) in enumerate(zip(requests, ids, strict=True)):
            self.asked.add((key, version))
            if key == ApiKey.PRODUCE and not fields["acks"]:
                continue
            label = f"{key.name} v{version} {note} {number + 1} of {len(requests)}"
            try:
                answers.append(self.connection.answer(key, version, correlation_id))
            except (ClosedError, TimeoutError) as error:
                self.close()
                self.transcript.append(Step(label, key, "closed" if isinstance(error, ClosedError) else "no answer"))
                break
            self.transcript.append(Step(label, key, self.normaliser.response(key, answers[-1])))
        return answers

    def settle(self) -> None:
        """Wait until every change so far is in force: Kafka's broker follows its controller some milliseconds behind.

        Changes take effect in order and in passes, so once a change made after the first of our own two is seen, the
        pass that held whatever came before is over.
        """
        if not self._barrier:
            self._barrier = time.monotonic_ns()
            self._create(BARRIER, 1, {})
        for _ in range(2):
            self._barrier += 1
            value = str(self._barrier)
            change = {"name": "retention.ms", "config_operation": 0, "value": value}
            resource: dict[str, Any] = {"resource_type": 2, "resource_name": BARRIER}
            fields = {"resources": [resource | {"configs": [change]}], "validate_only": False}
            self.quietly(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
            asked = {"resources": [resource | {"configuration_keys": ["retention.ms"]}]}
            deadline = time.monotonic() + SETTLE_TIMEOUT_S
            while True:
                configs = self.quietly(ApiKey.DESCRIBE_CONFIGS, 4, asked).results[0].configs
                if configs and configs[0].value == value:
                    break
                assert time.monotonic() < deadline, f"{self.name}: a change took over {SETTLE_TIMEOUT_S:.0f} s"

    def quietly(self, key: ApiKey, version: int, fields: Mapping[str, Any] | None = None) -> Any:
        """Ask for what the script itself needs to know."""
        response = self.connection.ask(key, version, fields or {})
        self.normaliser.response(key, response)
        return response

    def note(self, label: str, answer: Any, key: int = -1) -> None:
        """Something seen that is not one answer, or the answer to another connection."""
        self.transcript.append(Step(label, key, answer))

    def create(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A topic to work with, ready for use; its name."""
        result = self._create(name, partitions, configs or {})
        assert result.error_code == 0, (
            f"{self.name}: {name} was not created: {result.error_code} {result.error_message}"
        )
        self.settle()
        return name

    def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Any:
        response = self.quietly(
            ApiKey.CREATE_TOPICS,
            7,
            {
                "topics": [
                    {
                        "name": name,
                        "num_partitions": partitions,
                        "replication_factor": 1,
                        "assignments": [],
                        "configs": [{"name": k, "value": v} for k, v in configs.items()],
                    }
                ],
                "timeout_ms": 10_000,
                "validate_only": False,
            },
        )
        return response.topics[0]

    def topic_id(self, name: str) -> bytes:
        return self.normaliser.id_of(name)

    def named(self, name: str, key: ApiKey, version: int) -> dict[str, Any]:
        """How a topic is named in this version of Produce or Fetch: by its name, or by its id."""
        by_id_from = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 13}[key]
        if version >= by_id_from:
            return {"topic_id": self.topic_id(name)}
        return {"name" if key == ApiKey.PRODUCE else "topic": name}

    def produce(
        self,
        name: str,
        records: bytes | None,
        *,
        version: int = 12,
        partition: int = 0,
        acks: int = -1,
        transactional_id: str | None = None,
        note: str = "",
    ) -> Any:
        """One partition's records in one request; the answer for that partition, or None."""
        topic = self.named(name, ApiKey.PRODUCE, version)
        fields = {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": 10_000,
            "topic_data": [topic | {"partition_data": [{"index": partition, "records": records}]}],
        }
        response = self.ask(ApiKey.PRODUCE, version, fields, note)
        if response is None or not response.responses or not response.responses[0].partition_responses:
            return None
        answer = response.responses[0].partition_responses[0]
        if acks == 1 and answer.error_code == 0:
            self.wait_until_shown(name, partition)
        return answer

    def wait_until_shown(self, name: str, partition: int) -> None:
        """After acks=1 a record may be written and not yet shown: wait until the high watermark is at the log's end."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while self._end(name, partition, CONSUMER) != self._end(name, partition, DEBUGGING_CONSUMER):
            assert time.monotonic() < deadline, f"{self.name}: {name}-{partition} isn't shown to its end"

    def _end(self, name: str, partition: int, replica_id: int) -> int:
        part = {"partition_index": partition, "timestamp": LATEST}
        fields = {"replica_id": replica_id, "topics": [{"name": name, "partitions": [part]}]}
        return self.quietly(ApiKey.LIST_OFFSETS, 1, fields).topics[0].partitions[0].offset

    def fetch_fields(
        self,
        name: str,
        offset: int,
        *,
        version: int,
        partition: int = 0,
        max_bytes: int = 50_000_000,
        partition_max_bytes: int = 50_000_000,
        isolation: int = 0,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        wait_ms: int = 0,
        min_bytes: int = 1,
        session: tuple[int, int] = (0, -1),
    ) -> dict[str, Any]:
        part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes}
        if version >= 9:
            part["current_leader_epoch"] = leader_epoch
        if version >= 12:
            part["last_fetched_epoch"] = last_fetched_epoch
        fields: dict[str, Any] = {
            "max_wait_ms": wait_ms,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": isolation,
            "topics": [self.named(name, ApiKey.FETCH, version) | {"partitions": [part]}],
        }
        if version < 15:
            fields["replica_id"] = -1
        if version >= 7:
            fields |= {"session_id": session[0], "session_epoch": session[1], "forgotten_topics_data": []}
        return fields

    def fetch(self, name: str, offset: int, *, version: int = 16, note: str = "", **how: Any) -> Any:
        """One partition from one offset."""
        return self.ask(ApiKey.FETCH, version, self.fetch_fields(name, offset, version=version, **how), note)

    def list_offset(
        self,
        name: str,
        timestamp: int,
        *,
        version: int = 11,
        partition: int = 0,
        isolation: int = 0,
        epoch: int = -1,
        note: str = "",
    ) -> Any:
        part: dict[str, Any] = {"partition_index": partition, "timestamp": timestamp}
        if version >= 4:
            part["current_leader_epoch"] = epoch
        fields: dict[str, Any] = {"replica_id": -1, "topics": [{"name": name, "partitions": [part]}]}
        if version >= 2:
            fields["isolation_level"] = isolation
        if version >= 10:
            fields["timeout_ms"] = 10_000
        return self.ask(ApiKey.LIST_OFFSETS, version, fields, f"timestamp {timestamp} {note}".rstrip())

    def look(self, name: str, partitions: int = 1, *, stamped: bool = False) -> None:
        """What is there now: ListOffsets -1 to -6 and every byte, of each partition.

        Where the broker `stamped` the records, which of them is the latest depends on its clock.
        """
        for partition in range(partitions):
            self.wait_until_shown(name, partition)
            for timestamp in range(LATEST, EARLIEST_PENDING - 1, -1):
                if timestamp != MAX_TIMESTAMP or not stamped:
                    self.list_offset(name, timestamp, partition=partition)
            self.read_all(name, partition)

    def read_all(self, name: str, partition: int) -> None:
        """Every byte from the start of the partition to its end."""
        start = self.quietly(
            ApiKey.LIST_OFFSETS,
            1,
            {
                "replica_id": -1,
                "topics": [{"name": name, "partitions": [{"partition_index": partition, "timestamp": EARLIEST}]}],
            },
        )
        offset = start.topics[0].partitions[0].offset
        seen: list[Any] = []
        while True:
            fields = self.fetch_fields(name, offset, version=16, partition=partition)
            response = self.quietly(ApiKey.FETCH, 16, fields)
            part = response.responses[0].partitions[0]
            data = bytes(part.records or b"")
            read = list(self.normaliser.read(data))
            if part.error_code or not read:
                self.note(f"{name}-{partition} ends", (part.error_code, offset, part.high_watermark))
                break
            seen += [self.normaliser.batch(batch) for batch in read]
            offset = read[-1].next_offset
        self.note(f"{name}-{partition} holds {len(seen)} batches", seen)


def versions(key: ApiKey) -> range:
    """Every version of an API."""
    return range(RANGES[key].min, RANGES[key].max + 1)


def digest(data: bytes) -> str:
    """Long bytes in a few letters."""
    return data.hex() if len(data) <= 64 else f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:16]}"
