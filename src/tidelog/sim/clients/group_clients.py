"""Members of groups in the simulated world, in both protocols: they join, commit, leave, and die without a word.

A member that lost its connection doesn't know what became of its last commit. It begins anew: a classic one in the next
generation, one of the server-side protocol under a new id; so what it sent before is refused if it comes late.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.group_history import SESSION_S, GroupHistory
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

TOPIC = "tide"
PARTITIONS = 4
LATER = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
REFUSED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
STORAGE = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR)
"""A full disk or a failed sync may give these to a commit; it may be there all the same."""


class Stage(ClientWorld, Protocol):
    """A world with groups."""

    groups: GroupHistory


class GroupMember(Client):
    """What members of both protocols share: the search for the coordinator, and commits of what they own."""

    def __init__(self, world: Stage, name: str, random: SimRandom, group: str) -> None:
        self.stage = world
        self.group = group
        self.owned: set[int] = set()
        self.leaving = False
        self.left = False
        self.sent_at = 0.0
        """When it last sent what keeps its session alive."""
        super().__init__(world, name, random)

    @property
    def now(self) -> float:
        return self.stage.timeline.now

    @property
    @abstractmethod
    def id(self) -> str: ...

    @property
    @abstractmethod
    def epoch(self) -> int:
        """Generation or member epoch: what its commits are checked by."""

    @abstractmethod
    def enter(self, connection: ClientConnection) -> None:
        """Join: the coordinator is there."""

    @abstractmethod
    def depart(self, connection: ClientConnection) -> None:
        """Say goodbye."""

    def connected(self, connection: ClientConnection) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        connection.ask(request, FindCoordinatorResponse, 10, 4, self._coordinator_known)

    def _coordinator_known(self, response: FindCoordinatorResponse) -> None:
        if response.coordinators[0].error_code:
            self.later(self.connected, RETRY_S)
        else:
            self.later(self.enter, 0.0)

    def lost(self) -> None:
        self.give_back()

    def die(self) -> None:
        """Without a word: the broker finds out by the session timeout, or by the broken connection not at all."""
        self.give_back()
        self.loop.kill()

    def give_back(self, partition: int | None = None) -> None:
        self.owned -= {partition} if partition is not None else set(self.owned)
        self.stage.groups.gave_back(self.group, self.name_and_id, partition)

    @property
    def name_and_id(self) -> str:
        return f"{self.name} {self.id}"

    def was_given(self, partitions: set[int], generation: int | None) -> None:
        for partition in sorted(partitions - self.owned):
            self.stage.groups.saw_given(self.group, generation, partition, self.name_and_id, self.now, self.sent_at)
        self.owned |= partitions

    def pause_s(self, usual_s: float) -> float:
        """How long it works before it is heard of again: sometimes it hangs for longer than its session lasts."""
        if self.random.chance(0.03):
            self.stage.note(f"{self.name} hangs")
            return self.random.between(SESSION_S, 2 * SESSION_S)
        return self.random.between(0.05, usual_s)

    def commit(self, connection: ClientConnection) -> None:
        """The next number of some of its partitions."""
        chosen = [partition for partition in sorted(self.owned) if self.random.chance(0.7)]
        if not chosen:
            return
        numbers = {partition: self.stage.groups.next_number(self.group, partition) for partition in chosen}
        parts = [
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=number)
            for partition, number in numbers.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=parts)],
        )
        sent_at, member = self.now, self.name_and_id
        connection.ask(
            request,
            OffsetCommitResponse,
            8,
            9,
            lambda response: self._committed(response, numbers, sent_at, member),
        )

    def _committed(
        self, response: OffsetCommitResponse, numbers: Mapping[int, int], sent_at: float, member: str
    ) -> None:
        for part in response.topics[0].partitions:
            code = ErrorCode(part.error_code)
            number = numbers[part.partition_index]
            self.stage.note(f"{member} commits {number} in {part.partition_index}: {code.name}")
            if code is ErrorCode.NONE:
                self.stage.groups.saw_committed(self.group, part.partition_index, number, member, sent_at)
            elif code in REFUSED:
                self.stage.groups.refusals += 1
            elif code not in (*LATER, *STORAGE):
                raise Violation(f"{self.group} answered {code.name} to a commit of {member}")

    def check(self, code: int, doing: str) -> ErrorCode:
        """The error of an answer; a Violation where no broker may give it."""
        error = ErrorCode(code)
        allowed = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED, *LATER, *REFUSED, *STORAGE)
        if error not in allowed:
            raise Violation(f"{self.group} answered {error.name} to {self.name_and_id}, which {doing}")
        return error


class OffsetWatcher(Client):
    """Asks for the offsets of a group, and looks whether one went back. `final`: one whole answer is enough."""

    def __init__(self, world: Stage, name: str, random: SimRandom, group: str, *, final: bool = False) -> None:
        self.stage = world
        self.group = group
        self.done = False
        self._final = final
        self._floors: dict[int, int] = {}
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        groups = self.stage.groups
        self._floors = {partition: groups.of(self.group, partition).acknowledged for partition in range(PARTITIONS)}
        asked = OffsetFetchRequestGroup(group_id=self.group, topics=None)
        request = OffsetFetchRequest(groups=[asked], require_stable=self.random.chance(0.3))
        connection.ask(request, OffsetFetchResponse, 9, 8, self._answered)

    def _answered(self, response: OffsetFetchResponse) -> None:
        answer = response.groups[0]
        if not answer.error_code:
            offsets = {
                part.partition_index: part.committed_offset for topic in answer.topics for part in topic.partitions
            }
            self.stage.note(f"{self.name}: {offsets}")
            for partition, floor in self._floors.items():
                self.stage.groups.saw_fetched(self.group, partition, offsets.get(partition, 0), floor)
            self.done = True
        if not (self.done and self._final):
            self.later(self.connected, self.random.between(0.02, 0.3))
