"""Who changes the voters of the metadata quorum now and then: adds controllers that aren't, removes some that are."""

from typing import TYPE_CHECKING

from tidelog.raft.voters import ReplicaKey
from tidelog.sim.clients.actor import RETRY_S
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.cluster.admins import ANSWER_S, TIMEOUT_MS, ClusterClient
from tidelog.sim.cluster.shape import CLUSTER_ID, CONTROLLER_PORT
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from tidelog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from tidelog.sim.cluster.node import Machine
    from tidelog.sim.cluster.world import ClusterWorld

PAUSE_S = (0.3, 3.0)
REMOVES = 0.3
"""How often it removes a voter though nobody has to be added."""
VOTERS_MIN = 2
"""Fewer than these are never left."""


class MemberAdmin(ClusterClient):
    """Asks whoever leads. What comes of it is seen by who watches the quorum; an answer may also be a refusal.

    `only`: it asks this one, once, and removes a voter where nobody has to be added.
    """

    def __init__(self, world: "ClusterWorld", random: SimRandom, only: "Machine | None" = None) -> None:
        self.stopped = False
        self.changes = 0
        self._only = only
        super().__init__(world, "members", random)

    def where(self) -> tuple[str, int]:
        leader = self._only or self.cluster.leader()
        return (leader or self.random.choose(self.cluster.controllers)).address, CONTROLLER_PORT

    def connected(self, connection: ClientConnection) -> None:
        self.later(self._change, self.random.between(*PAUSE_S) if self._only is None else 0.0)

    def _change(self, connection: ClientConnection) -> None:
        leader = self._only or self.cluster.leader()
        if self.stopped or leader is None or not self.cluster.is_looked_at(leader):
            self.later(lambda connection: connection.close(), RETRY_S)
            return
        self.stopped = self._only is not None
        voters = [voter.key for voter in self.cluster.replica(leader).voters.voters]
        voting = {key.id for key in voters}
        missing = [one for one in self.cluster.controllers if one.id not in voting and one.directory_id]
        lost = [key for key in voters if key.directory_id != self.cluster.machines[key.id].directory_id]
        if lost:
            self._remove(connection, self.random.choose(lost))
        elif missing and self.random.chance(0.7):
            self._add(connection, self.random.choose(missing))
        elif len(voters) > VOTERS_MIN and (self._only or self.random.chance(REMOVES)):
            self._remove(connection, self.random.choose(voters))
        else:
            self._go_on()

    def _go_on(self) -> None:
        self.later(lambda connection: connection.close(), RETRY_S)

    def _answered(self, what: str, code: int) -> None:
        self.world.note(f"{what}: {ErrorCode(code).name}")
        self.changes += code == ErrorCode.NONE
        self._go_on()

    def _add(self, connection: ClientConnection, machine: "Machine") -> None:
        at = machine.shape.endpoint

        def answered(response: AddRaftVoterResponse) -> None:
            self._answered(f"voter {machine.id} is added", response.error_code)

        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=TIMEOUT_MS,
            voter_id=machine.id,
            voter_directory_id=machine.directory_id,
            listeners=[Listener(name=at.name, host=at.host, port=at.port)],
        )
        connection.ask(request, AddRaftVoterResponse, 80, 1, answered, ANSWER_S)
        self.cluster.struck("voter to be added")

    def _remove(self, connection: ClientConnection, key: ReplicaKey) -> None:
        def answered(response: RemoveRaftVoterResponse) -> None:
            self._answered(f"voter {key.id} is removed", response.error_code)

        request = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id)
        connection.ask(request, RemoveRaftVoterResponse, 81, 0, answered, ANSWER_S)
        self.cluster.struck("voter to be removed")
