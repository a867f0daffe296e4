"""Raw requests to a simulated cluster, each to the broker that it is for: coordinators and leaders on several nodes.

It has what `tests.apis.txn` needs of a broker, so that its producers speak to a cluster, too.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from tests.raw import build, request_class, response_class
from tests.sim.clusters import cluster, settle
from tidelog.broker import Broker
from tidelog.coordinator.placement import CONSUMER_OFFSETS, TRANSACTION_STATE, partition_of
from tidelog.metadata.image import ClusterImage
from tidelog.replica.partition import Partition
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.cluster.admins import CLIENTS_ADDRESS
from tidelog.sim.cluster.node import Machine
from tidelog.sim.cluster.shape import BROKER_PORT
from tidelog.sim.cluster.world import ClusterWorld
from tidelog.sim.world.loop import SimLoop
from tidelog.sim.world.random import SimRandom
from tidelog.wire.keys import ApiKey

WAIT_S = 30.0
MARKED_S = 0.5
"""Markers that nothing holds up are written in this time."""
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
}

REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.replication.factor": "3",
}
"""What replaces some of these where every broker may go for good."""


class Pending:
    """A request on its way. `response` once it is answered; `lost` when its connection broke instead."""

    def __init__(self) -> None:
        self.response: Any = None
        self.lost = False

    @property
    def done(self) -> bool:
        return self.lost or self.response is not None

    def answered(self, response: Any) -> None:
        self.response = response


class Line:
    """A client's connection to one broker: what is sent on it is handled in its order."""

    def __init__(self, across: "Across", broker_id: int, client_id: str = "tester") -> None:
        machine = across.world.machines[broker_id]
        self._across = across
        self._asked: list[Pending] = []
        loop = SimLoop(across.world.timeline, SimRandom(f"client {next(across.names)}"))
        self._connection = ClientConnection(
            client_id, loop, across.world.network, self._was_lost, (machine.address, BROKER_PORT), CLIENTS_ADDRESS
        )

    def _was_lost(self) -> None:
        for pending in self._asked:
            pending.lost = True

    def send(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Pending:
        pending = Pending()
        self._asked.append(pending)
        request = build(request_class(key), fields)
        self._connection.ask(request, response_class(key), key, version, pending.answered, WAIT_S)
        return pending

    def ask(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        return self._across.answer(self.send(key, version, fields))

    def close(self) -> None:
        self._connection.close()


class Across:
    def __init__(self, settings: Mapping[str, str] | None = None, *, seed: int = 1) -> None:
        self.names = count(1)
        self.world: ClusterWorld = cluster(settings={**SETTINGS, **(settings or {})}, seed=seed)
        for key_type in (0, 1):
            fields = {"key_type": key_type, "coordinator_keys": ["any"]}
            self.ask_at(1, ApiKey.FIND_COORDINATOR, 4, fields)
        self.settle()

    def machine(self, broker_id: int) -> Machine:
        return self.world.machines[broker_id]

    def broker(self, broker_id: int) -> Broker:
        return self.machine(broker_id).running.broker

    @property
    def image(self) -> ClusterImage:
        """As one that serves knows it."""
        ready = next(machine for machine in self.world.brokers if machine.ready and not machine.frozen)
        return ready.running.broker.services.metadata.image

    def leader(self, topic: str, index: int) -> int:
        partition = self.image.partition(topic, index)
        assert partition is not None
        return partition.leader

    def coordinator(self, name: str, topic: str = TRANSACTION_STATE) -> int:
        return self.leader(topic, partition_of(name, len(self.image.topics[topic].partitions)))

    def name_at(self, broker_id: int, topic: str = TRANSACTION_STATE, prefix: str = "bank") -> str:
        """A transactional id, or a group, whose coordinator is this broker."""
        return next(
            name for name in map(f"{prefix}-{{}}".format, count()) if self.coordinator(name, topic) == broker_id
        )

    def group_at(self, broker_id: int) -> str:
        return self.name_at(broker_id, CONSUMER_OFFSETS, "group")

    def partition(self, topic: str, index: int) -> Partition:
        return self.broker(self.leader(topic, index)).services.replicas.get(topic, index)

    # -- requests

    def send_at(self, broker_id: int, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Pending:
        return Line(self, broker_id).send(key, version, fields)

    def ask_at(self, broker_id: int, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        return self.answer(self.send_at(broker_id, key, version, fields))

    def answer(self, pending: Pending) -> Any:
        self.world.wait(lambda: pending.done, WAIT_S, lambda: "an answer")
        assert not pending.lost, "the connection broke"
        return pending.response

    def ask(self, key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """At the broker that it is for."""
        return self.ask_at(self._for(ApiKey(key), fields), ApiKey(key), version, fields)

    def route(self, key: ApiKey, fields: Mapping[str, Any]) -> int | None:
        """The broker that a request is for; None where nobody leads what it is about."""
        broker_id = self._for(key, fields)
        return broker_id if broker_id in self.world.machines else None

    def _for(self, key: ApiKey, fields: Mapping[str, Any]) -> int:
        if key is ApiKey.PRODUCE:
            topic = fields["topic_data"][0]
            return self.leader(topic["name"], topic["partition_data"][0]["index"])
        if key is ApiKey.FETCH:
            topic = fields["topics"][0]
            return self.leader(topic["topic"], topic["partitions"][0]["partition"])
        if key in (ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_COMMIT):
            return self.coordinator(fields["group_id"], CONSUMER_OFFSETS)
        if key is ApiKey.OFFSET_FETCH:
            return self.coordinator(fields["groups"][0]["group_id"], CONSUMER_OFFSETS)
        for name in ("transactional_id", "v3_and_below_transactional_id"):
            if name in fields:
                return self.coordinator(fields[name])
        if key is ApiKey.ADD_PARTITIONS_TO_TXN:
            return self.coordinator(fields["transactions"][0]["transactional_id"])
        if key is ApiKey.DESCRIBE_TRANSACTIONS:
            return self.coordinator(fields["transactional_ids"][0])
        return 1

    def settle(self) -> None:
        self.pass_time(MARKED_S)

    def pass_time(self, seconds: float) -> None:
        settle(self.world, seconds)

    def kill(self, broker_id: int) -> None:
        """And let it stay so."""
        machine = self.machine(broker_id)
        machine.down = True
        machine.kill()

    def start(self, broker_id: int) -> None:
        machine = self.machine(broker_id)
        machine.down = False
        if not machine.up:
            machine.start()
        self.world.wait(lambda: machine.ready, WAIT_S, lambda: f"broker {broker_id}")

    def make_topic(self, name: str, leaders: Sequence[int] = (1, 2, 3), *, replicas: int = 1) -> None:
        """A partition for each of these brokers, which leads it; its other replicas are on those that come next."""
        assignments = [
            {"partition_index": index, "broker_ids": [(id - 1 + more) % 3 + 1 for more in range(replicas)]}
            for index, id in enumerate(leaders)
        ]
        topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
        answer = self.ask_at(1, ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 10_000}).topics[0]
        assert answer.error_code == 0, answer
        self.world.wait(
            lambda: all(
                name in one.running.broker.services.metadata.image.topics for one in self.world.brokers if one.up
            ),
            WAIT_S,
            lambda: f"all brokers to know {name}",
        )
