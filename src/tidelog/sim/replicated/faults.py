"""What goes wrong where data is replicated: faults of a cluster, most of brokers that lead; replicas are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.sim.cluster.faults import ClusterFaults
from tidelog.sim.replicated.roaming import RoamingClient
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.sim.cluster.node import Machine
    from tidelog.sim.cluster.world import ClusterWorld
    from tidelog.sim.replicated.bearing import Bearing
    from tidelog.sim.replicated.topics import Topic
    from tidelog.sim.world.random import SimRandom

REPLICA_FAULTS: Mapping[str, float] = {
    "kill": 3.0,
    "power": 3.0,
    "blackout": 1.2,
    "freeze": 2.5,
    "split": 3.0,
    "isolate": 2.0,
    "slow": 1.0,
    "reset": 1.5,
    "full": 0.8,
    "sync": 0.8,
    "disk": 0.8,
    "wipe": 1.5,
    "amnesia": 0.3,
    "stop": 1.5,
    "alone": 0.3,
    "elect": 1.5,
    "reassign": 1.5,
}
"""How likely each kind is; what it does is the method of its name."""
LEADS_DATA, LEADS_QUORUM = 0.5, 0.2
"""How often a fault is of a broker that leads a partition, and of who leads the quorum; else of any node."""


class ReplicaFaults(ClusterFaults):
    """`topics`: those whose replicas are moved."""

    def __init__(
        self,
        world: ClusterWorld,
        random: SimRandom,
        until: float,
        weights: Mapping[str, float],
        bearing: Bearing,
        topics: Sequence[Topic],
    ) -> None:
        self._bearing = bearing
        self._topics = topics
        self._orders = RoamingClient(world, "orders", random.fork("orders"))
        super().__init__(world, random, until, weights)

    def leads(self, topic: str, index: int) -> Machine | None:
        """The machine whose broker leads it, if that is up, as the newest metadata has it."""
        image = self._bearing.image()
        known = None if image is None else image.topics.get(topic)
        machine = None if known is None else self._world.machines.get(known.partitions[index].leader)
        return machine if machine is not None and machine.up else None

    def _leader_or_any(self) -> Machine | None:
        draw = self._random.between(0.0, 1.0)
        topic, index = self._random.choose([place for one in self._topics for place in one.places])
        if draw < LEADS_DATA:
            machine = self.leads(topic, index)
            return machine if machine is not None and self._bearing.may_end(machine) else self._any()
        leader = self._world.leader()
        if leader is None or draw >= LEADS_DATA + LEADS_QUORUM or not self._bearing.may_end(leader):
            return self._any()
        return leader

    def _any(self, wanted: Callable[[Machine], bool] = lambda machine: machine.up) -> Machine | None:
        return super()._any(lambda machine: wanted(machine) and self._bearing.may_end(machine))

    def _blackout(self) -> None:
        if all(map(self._bearing.may_end, self._world.machines.values())):
            super()._blackout()

    def _alone(self) -> None:
        if all(map(self._bearing.may_end, self._world.machines.values())):
            super()._alone()

    def _sync(self) -> None:
        """Who can't trust its disk claims no more than who lost it."""
        machine = self._any(
            lambda machine: machine.up and (not machine.shape.is_broker or self._bearing.may_be_emptied(machine))
        )
        if machine is not None:
            self._fail_syncs(machine)
            if machine.shape.is_broker:
                self._bearing.emptied(machine)

    def _may_be_wiped(self, machine: Machine) -> bool:
        if machine.shape.is_broker and not self._bearing.may_be_emptied(machine):
            return False
        return super()._may_be_wiped(machine)

    def _wipe_machine(self, machine: Machine) -> None:
        self._bearing.emptied(machine)
        super()._wipe_machine(machine)

    # -- leaders and replicas that are moved

    def _elect(self) -> None:
        """The preferred replicas are to lead, wherever they can."""

        def answered(response: ElectLeadersResponse | None) -> None:
            if response is not None:
                results = [one for topic in response.replica_election_results for one in topic.partition_result]
                moved = sum(one.error_code == ErrorCode.NONE for one in results)
                self._world.note(f"{moved} leaders are elected")

        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000)
        self._orders.ask_any(request, ElectLeadersResponse, 43, 2, answered)
        self._world.struck("leaders to be elected")

    def _reassign(self) -> None:
        """A partition's replicas are to be others, or in another order."""
        topic = self._random.choose(self._topics)
        name, index = self._random.choose(topic.places)
        brokers = [machine.id for machine in self._world.brokers]
        wanted: list[int] = []
        while len(wanted) < min(topic.replicas, len(brokers)):
            wanted.append(self._random.choose([id for id in brokers if id not in wanted]))

        def answered(response: AlterPartitionReassignmentsResponse | None) -> None:
            if response is not None:
                codes = [one.error_code for answer in response.responses for one in answer.partitions]
                self._world.note(f"{name}-{index} is to be on {wanted}: {response.error_code} {codes}")

        partition = ReassignablePartition(partition_index=index, replicas=list(wanted))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=1000, topics=[ReassignableTopic(name=name, partitions=[partition])]
        )
        self._orders.ask_any(request, AlterPartitionReassignmentsResponse, 45, 0, answered)
        self._world.struck("reassignment")
