"""What goes wrong where data is replicated: faults of a cluster, most of brokers that lead; replicas are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.sim.cluster.faults import ClusterFaults
from tidelog.sim.replicated.probe import partitions_of
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

    from tidelog.replica.partition import Partition
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
    "ambush": 0.8,
    "late": 0.8,
}
"""How likely each kind is; what it does is the method of its name."""


def _is_asked_in(partition: Partition, broker_id: int) -> bool:
    return partition.leading is not None and broker_id in partition.leading.maximal_isr


def _may_join(partition: Partition, broker_id: int) -> bool:
    return True


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

    # -- what takes several

    def _ambush(self) -> None:
        """Somebody is about to join an ISR: the leader doesn't hear that it is done, and is gone soon; who joins hears
        nothing more of it."""

        def strike(leader: Machine, joining: Machine) -> None:
            self._world.note(f"ambush: {joining.id} is cut off", leader.id)
            network = self._world.network
            network.split(leader.address, joining.address)
            for other in self._world.controllers:
                if other is not leader:
                    network.split(other.address, leader.address, one_way=True)
            self._later(self._random.between(0.15, 0.6), self._ends_for_a_while, leader)
            self._world.timeline.plan(self._random.between(2.5, 4.0), self._heal, leader)

        self._when_one_joins(strike, wait=_is_asked_in)

    def _late(self) -> None:
        """Who is about to join an ISR loses its disk, and is back, before the controller hears of that."""

        def strike(leader: Machine, joining: Machine) -> None:
            network = self._world.network
            controllers = [other for other in self._world.controllers if other is not leader]
            if joining in controllers or leader.shape.is_controller or not self._may_be_wiped(joining):
                return
            self._world.note(f"late: what it asks of the controllers waits while {joining.id} is wiped", leader.id)
            for other in controllers:
                network.split(leader.address, other.address, one_way=True)
            self._later(self._random.between(0.05, 0.3), wipe, leader, joining)

        def wipe(leader: Machine, joining: Machine) -> None:
            if not self._may_be_wiped(joining):
                return
            joining.kill()
            self._wipe_machine(joining)
            self._world.revive(joining)
            self._world.network.split(leader.address, joining.address)
            self._later(self._random.between(0.6, 1.2), arrives, leader)
            self._world.timeline.plan(4.0, self._heal, leader)

        def arrives(leader: Machine) -> None:
            for other in self._world.controllers:
                self._world.network.heal(leader.address, other.address)
            self._later(self._random.between(0.02, 0.1), self._ends_for_a_while, leader)

        self._when_one_joins(strike, wait=_may_join)

    def _when_one_joins(
        self, strike: Callable[[Machine, Machine], None], wait: Callable[[Partition, int], bool], looks: int = 300
    ) -> None:
        """As soon as a replica that isn't in the ISR fetches from a leader, and `wait` says so of it."""
        names = {topic.name for topic in self._topics}
        for leader in self._world.brokers if looks else ():
            if not leader.up or leader.frozen or not self._bearing.may_end(leader):
                continue
            for partition in partitions_of(leader):
                leading = partition.leading
                if leading is None or partition.topic not in names:
                    continue
                for id in leading.followers:
                    joining = self._world.machines[id]
                    if id not in leading.isr and joining.ready and wait(partition, id):
                        strike(leader, joining)
                        return
        if looks:
            self._later(0.005, self._when_one_joins, strike, wait, looks - 1)

    def _ends_for_a_while(self, machine: Machine) -> None:
        if not machine.up or not self._bearing.may_end(machine):
            return
        machine.down = True
        machine.kill()

        def back() -> None:
            machine.down = False
            self._world.revive(machine)

        self._later(self._random.between(1.5, 3.0), back)

    def _heal(self, machine: Machine) -> None:
        for other in self._world.machines.values():
            self._world.network.heal(machine.address, other.address)
