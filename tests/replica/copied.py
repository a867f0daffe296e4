"""A simulated cluster of a controller and three brokers, each with a replica of a topic: to write, kill and compare."""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

from tests.batches import Batch, Producer, Sent
from tests.sim.clusters import cluster, settle
from tidelog.log.log import Log
from tidelog.replica.partition import Partition
from tidelog.sim.cluster.node import Machine
from tidelog.sim.cluster.shape import BROKER, CONTROLLER
from tidelog.sim.world.loop import EPOCH_MS
from tidelog.wire.batch import build, iterate
from tidelog.wire.markers import marker_record
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

TOPIC = "tide"
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
NOW_MS = EPOCH_MS
HEADER_START = Struct(">qii")  # base offset, length, leader epoch


class Copied:
    """`machines` are the brokers, by node id. The controller is never touched."""

    def __init__(
        self,
        configs: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        partitions: int = 1,
        seed: int = 1,
    ) -> None:
        self.world = cluster((CONTROLLER, BROKER, BROKER, BROKER), settings, seed=seed)
        self.machines = {machine.id: machine for machine in self.world.brokers}
        self.create(TOPIC, partitions, configs or UNCLEAN)

    def settle(self, seconds: float) -> None:
        settle(self.world, seconds)

    # -- topics

    def create(
        self, name: str, partitions: int, configs: Mapping[str, str], replicas: Sequence[int] | None = None
    ) -> None:
        """`replicas`: of its only partition, the preferred leader first."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions if replicas is None else -1,
            replication_factor=3 if replicas is None else -1,
            assignments=[]
            if replicas is None
            else [CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        assert answer.topics[0].error_code == 0, answer
        self.wait(lambda: all(name in self.image(one).topics for one in self.up), "all nodes to know the topic")

    def delete(self, name: str) -> None:
        self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000))
        self.wait(lambda: all(name not in self.image(one).topics for one in self.up), "all nodes to forget the topic")

    def ask(self, request: object) -> Any:
        promise = self.services(self.up[0]).channel.ask(request, 5000)
        self.wait(lambda: promise.done, "the controller's answer")
        return promise.result()

    # -- nodes

    @property
    def up(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.ready]

    def services(self, machine: Machine) -> Any:
        return machine.running.broker.services

    def image(self, machine: Machine) -> Any:
        return self.services(machine).metadata.image

    def wait(self, done: Any, what: str, seconds: float = 20.0) -> None:
        self.world.wait(done, seconds, lambda: what)

    def start(self, *machines: Machine) -> None:
        for machine in machines:
            machine.down = False
            machine.start()
        self.wait(lambda: all(machine.ready for machine in machines), "the nodes to serve")

    def kill(self, *machines: Machine, power: bool = False) -> None:
        """They stay so until they are started."""
        for machine in machines:
            machine.down = True
            if power:
                machine.lose_power()
            else:
                machine.kill()

    def stop(self, machine: Machine) -> None:
        machine.down = True
        stopped: list[bool] = []
        machine.running.stop(lambda: stopped.append(True))
        self.wait(lambda: bool(stopped), "the node to stop")

    # -- partitions

    def leader_of(self, index: int) -> Machine:
        """Once there is one that runs and knows it."""

        def newest() -> Any:
            known = (self.image(machine).topics[TOPIC].partitions[index] for machine in self.up)
            return max(known, key=lambda partition: (partition.leader_epoch, partition.partition_epoch))

        def is_led() -> bool:
            leader = self.machines.get(newest().leader)
            return leader is not None and leader.ready and self.partition(leader, index).is_served

        self.wait(is_led, "a leader")
        return self.machines[newest().leader]

    @property
    def leader(self) -> Machine:
        """Of partition 0."""
        return self.leader_of(0)

    @property
    def followers(self) -> list[Machine]:
        leader = self.leader
        return [machine for machine in self.machines.values() if machine is not leader]

    def partition(self, machine: Machine, index: int = 0) -> Partition:
        replicas = self.services(machine).replicas
        opened = replicas.open([(TOPIC, index)])
        if opened is not None:
            self.wait(lambda: opened.done, "the log to be open")
        return replicas.get(TOPIC, index)

    def log(self, machine: Machine, index: int = 0) -> Log:
        return self.partition(machine, index).log

    def append(self, *values: bytes, index: int = 0, producer: Producer | None = None) -> int:
        """One batch, at the leader, with acks=1; its base offset."""
        more = {} if producer is None else {"producer": producer}
        return self.append_batch(
            Batch([Sent(value) for value in values], base_timestamp=NOW_MS, **more).encode(), index
        )

    def append_batch(self, data: bytes, index: int = 0) -> int:
        partition = self.partition(self.leader_of(index), index)
        view = memoryview(bytearray(data))
        return partition.append(view, 0, len(view), 1, NOW_MS)[0]

    def append_marker(self, producer_id: int, *, commit: bool) -> None:
        """The end of a transaction, as its coordinator has the leader write it."""
        partition = self.partition(self.leader)
        record = marker_record(0, NOW_MS, commit=commit)
        data = build([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)
        HEADER_START.pack_into(data, 0, partition.log.log_end, len(data) - 12, partition.leader_epoch)
        partition.append_own(memoryview(data), partition.leader_epoch, NOW_MS)

    def copied(self, machines: list[Machine] | None = None, index: int = 0) -> bytes:
        """What these have, once they have the same, durably, and know it to be committed."""
        compared = machines or list(self.machines.values())

        def are_equal() -> bool:
            partitions = [self.partition(machine, index) for machine in compared]
            ends = {(one.log.log_start, one.log.log_end, one.log.durable_end, one.high_watermark) for one in partitions}
            return len(ends) == 1 and min(ends)[1] == min(ends)[3]

        self.wait(are_equal, "the replicas to be equal")
        contents = {self.content(machine, index) for machine in compared}
        assert len(contents) == 1
        self.check()
        return contents.pop()

    def content(self, machine: Machine, index: int = 0) -> bytes:
        """The bytes of its log, whatever its segments."""
        log, found = self.log(machine, index), bytearray()
        at = log.log_start
        while at < log.log_end:
            data = log.read_bytes(at, 1 << 20, log.log_end)
            if not data:
                break
            found += data
            at = max(header.next_offset for header in iterate(data))
        return bytes(found)

    def check(self) -> None:
        for machine in self.up:
            broker = machine.running.broker
            assert broker.replication is not None
            broker.replication.fetchers.check_invariants()
            broker.services.replicas.check_invariants()
            for partition in broker.services.replicas:
                partition.log.check_invariants()
