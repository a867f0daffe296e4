"""A transactional producer made of raw requests, for a broker on virtual time: any version, any order, any lie."""

from collections.abc import Mapping
from typing import Any, Protocol

from tests.apis.sim_broker import NOW_MS
from tests.batches import TRANSACTIONAL, Batch, Producer, Sent
from tidelog.wire.batch import iterate, records
from tidelog.wire.keys import ApiKey

CLASSIC = {"produce": 9, "end": 3}
"""Versions of a client of the first kind, such as librdkafka."""
SECOND = {"produce": 12, "end": 5}
"""Versions of a client that joins partitions by producing, and has an epoch for each transaction."""


class Asks(Protocol):
    """A broker, or several of them."""

    def ask(self, key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """The answer, waited for."""
        ...

    def settle(self) -> None:
        """Let everything happen that happens by itself."""
        ...


class Txn:
    """One producer. `id` and `epoch` are what it was told last."""

    def __init__(self, sim_broker: Asks, name: str = "bank", *, versions: dict[str, int] = CLASSIC) -> None:
        self.sim_broker = sim_broker
        self.name = name
        self.versions = versions
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def find(self) -> None:
        """Has the coordinator's topic made."""
        fields = {"key_type": 1, "coordinator_keys": [self.name]}
        assert self.sim_broker.ask(ApiKey.FIND_COORDINATOR, 4, fields).coordinators[0].error_code == 0

    def init(self, *, timeout_ms: int = 60_000, version: int = 4, resume: bool = False, **more: Any) -> int:
        """InitProducerId; the error."""
        self.find()
        fields: dict[str, Any] = {"transactional_id": self.name, "transaction_timeout_ms": timeout_ms, **more}
        if resume:
            fields |= {"producer_id": self.id, "producer_epoch": self.epoch}
        answer = self.sim_broker.ask(ApiKey.INIT_PRODUCER_ID, version, fields)
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer.error_code

    def add_fields(self, topic: str, *partitions: int) -> dict[str, Any]:
        return {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": list(partitions or (0,))}],
        }

    def add(self, topic: str, *partitions: int, version: int = 3) -> int:
        """AddPartitionsToTxn; the error of the first partition."""
        answer = self.sim_broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, self.add_fields(topic, *partitions))
        return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    def verify(self, topic: str, partition: int = 0, version: int = 5) -> int:
        """AddPartitionsToTxn as brokers send it, verify-only."""
        asked = {
            "transactional_id": self.name,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "verify_only": True,
            "topics": [{"name": topic, "partitions": [partition]}],
        }
        answer = self.sim_broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": [asked]})
        return answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code

    def batch(self, *values: bytes, sequence: int, epoch: int | None = None) -> bytes:
        producer = Producer(self.id, self.epoch if epoch is None else epoch, sequence)
        sent = [Sent(value) for value in values]
        return Batch(sent, base_timestamp=NOW_MS, producer=producer, attributes=TRANSACTIONAL).encode()

    def produce_fields(self, topic: str, records: bytes, partition: int = 0) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "acks": -1,
            "timeout_ms": 5000,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
        }

    def send(self, topic: str, *values: bytes, partition: int = 0, sequence: int | None = None) -> int:
        """Produce; the error."""
        place = (topic, partition)
        if sequence is None:
            sequence = self.sequences.get(place, 0)
        fields = self.produce_fields(topic, self.batch(*values, sequence=sequence), partition)
        answer = self.sim_broker.ask(ApiKey.PRODUCE, self.versions["produce"], fields)
        told = answer.responses[0].partition_responses[0]
        if not told.error_code:
            self.sequences[place] = sequence + len(values)
        return told.error_code

    def end_fields(self, *, commit: bool) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }

    def end(self, *, commit: bool) -> int:
        """EndTxn; the error."""
        version = self.versions["end"]
        answer = self.sim_broker.ask(ApiKey.END_TXN, version, self.end_fields(commit=commit))
        self.sim_broker.settle()  # the markers are written right after the answer
        if not answer.error_code and version >= 5:
            if (self.id, self.epoch) != (answer.producer_id, answer.producer_epoch):
                self.sequences.clear()
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    def commit(self) -> int:
        return self.end(commit=True)

    def abort(self) -> int:
        return self.end(commit=False)

    def describe(self) -> Any:
        answer = self.sim_broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [self.name]})
        return answer.transaction_states[0]

    @property
    def state(self) -> str:
        return self.describe().transaction_state


def read_committed(sim_broker: Asks, topic: str, partition: int = 0, offset: int = 0) -> list[bytes]:
    """What a reader of committed records sees, filtered by the aborted list as clients do it."""
    return _walk(sim_broker, topic, partition, offset, isolation=1)


def read_all(sim_broker: Asks, topic: str, partition: int = 0, offset: int = 0) -> list[bytes]:
    return _walk(sim_broker, topic, partition, offset, isolation=0)


def fetch(sim_broker: Asks, topic: str, partition: int = 0, offset: int = 0, *, isolation: int = 1) -> Any:
    """One partition's answer to a fetch that waits for nothing."""
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    fields = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 24,
        "isolation_level": isolation,
        "topics": [{"topic": topic, "partitions": [asked]}],
    }
    return sim_broker.ask(ApiKey.FETCH, 12, fields).responses[0].partitions[0]


def _walk(sim_broker: Asks, topic: str, partition: int, offset: int, *, isolation: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        answer = fetch(sim_broker, topic, partition, offset, isolation=isolation)
        assert answer.error_code == 0
        data = bytes(answer.records or b"")
        aborted = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
        skipping: set[int] = set()
        last = offset
        for header in iterate(data):
            while aborted and aborted[0][0] <= header.last_offset:
                skipping.add(aborted.pop(0)[1])
            last = header.next_offset
            if header.control:
                if bytes(next(iter(records(data, header))).key or b"")[3] == 0:
                    skipping.discard(header.producer_id)
                continue
            if not (header.transactional and header.producer_id in skipping):
                found += [bytes(record.value or b"") for record in records(data, header)]
        if last == offset:
            return found
        offset = last
