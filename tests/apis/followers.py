"""Followers of a simulated broker, as the test speaks for them: what they fetch, and what they are told."""

from dataclasses import replace
from typing import Any

from tests.apis.sim_broker import Asked, SimBroker
from tests.metadata.images import broker as registration
from tidelog.machine.decision import Decision
from tidelog.metadata.image import BrokerImage
from tidelog.wire.keys import ApiKey
from tidelog.wire.records.metadata import PartitionChangeRecord, Record

NOT_TOLD = 2**63 - 1


def submit(broker: SimBroker, *records: Record) -> None:
    broker.wait(broker.services.controller.submit(lambda *_: Decision(list(records), None)))
    broker.settle()


def register(broker: SimBroker, id: int, *, epoch: int | None = None, fenced: bool = False, rack: str = "") -> None:
    """Another broker of the cluster."""
    submit(broker, replace(registration(id, epoch=epoch or 100 * id, fenced=fenced), rack=rack or None))


def epoch_of(broker: SimBroker, id: int) -> int:
    found: BrokerImage = broker.services.metadata.image.brokers[id]
    return found.epoch


def change(broker: SimBroker, topic: str = "tide", index: int = 0, **fields: Any) -> None:
    """The controller decides something of a partition."""
    topic_id = broker.services.metadata.image.topics[topic].id
    submit(broker, PartitionChangeRecord(partition_id=index, topic_id=topic_id, **fields))


class FollowingBroker:
    """Broker `id`, which follows partitions of a topic in one session."""

    def __init__(
        self, broker: SimBroker, id: int, topic: str = "tide", *, version: int = 18, epoch: int | None = None
    ) -> None:
        self.broker = broker
        self.id = id
        self.version = version
        self.topic = topic
        self.topic_id = broker.services.metadata.image.topics[topic].id
        self.epoch = epoch_of(broker, id) if epoch is None else epoch
        self.session_id = 0
        self.session_epoch = 0

    def part(self, index: int, offset: int, **more: Any) -> dict[str, Any]:
        """What is asked of one partition."""
        image = self.broker.services.metadata.image.topics_by_id[self.topic_id].partitions[index]
        return {
            "partition": index,
            "current_leader_epoch": image.leader_epoch,
            "fetch_offset": offset,
            "log_start_offset": 0,
            "partition_max_bytes": 1 << 20,
            **more,
        }

    def send(self, *parts: dict[str, Any], forget: tuple[int, ...] = (), wait_ms: int = 500, **more: Any) -> Asked:
        state = {"replica_id": self.id, "replica_epoch": self.epoch}
        asked = self.broker.send(
            ApiKey.FETCH,
            self.version,
            {
                **({"replica_state": state} if self.version >= 15 else {"replica_id": self.id}),
                "max_wait_ms": wait_ms,
                "min_bytes": 1,
                "max_bytes": 1 << 24,
                "session_id": self.session_id,
                "session_epoch": self.session_epoch,
                "topics": [self._named("partitions", list(parts))] if parts else [],
                "forgotten_topics_data": [self._named("partitions", list(forget))] if forget else [],
                **more,
            },
        )
        self.broker.settle()
        return asked

    def _named(self, field: str, values: list[Any]) -> dict[str, Any]:
        return {**({"topic_id": self.topic_id} if self.version >= 13 else {"topic": self.topic}), field: values}

    def take(self, asked: Asked) -> list[tuple[int, int, int, list[int]]]:
        """Of each partition that the answer tells of: index, error, high watermark, base offsets of the batches."""
        response = asked.response
        assert response.error_code == 0, response
        self.session_id = response.session_id
        self.session_epoch += 1
        return [
            (one.partition_index, one.error_code, one.high_watermark, bases(bytes(one.records or b"")))
            for topic in response.responses
            for one in topic.partitions
        ]

    def fetch(self, *parts: dict[str, Any], **more: Any) -> list[tuple[int, int, int, list[int]]]:
        """What it is told at once."""
        return self.take(self.send(*parts, **{"wait_ms": 0, **more}))


def bases(records: bytes) -> list[int]:
    found: list[int] = []
    pos = 0
    while pos + 12 <= len(records):
        found.append(int.from_bytes(records[pos : pos + 8]))
        pos += 12 + int.from_bytes(records[pos + 8 : pos + 12])
    return found
