"""The two kinds of members: of the classic protocol, where one of them shares out, and of the server-side one."""

from tidelog.sim.clients.actor import RETRY_S
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.group_clients import LATER, PARTITIONS, STORAGE, TOPIC, GroupMember, Stage
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.group_history import SESSION_S
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

BEAT_S = 0.3
JOIN_TIMEOUT_S = 10.0
SESSION_MS = int(SESSION_S * 1000)


class ClassicMember(GroupMember):
    """Eager: it gives everything back before it joins the next generation. Assignments are the numbers, as text."""

    def __init__(self, world: Stage, name: str, random: SimRandom, group: str) -> None:
        self._id = ""
        self._generation = -1
        super().__init__(world, name, random, group)

    @property
    def id(self) -> str:
        return self._id

    @property
    def epoch(self) -> int:
        return self._generation

    def enter(self, connection: ClientConnection) -> None:
        self.give_back()
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        connection.ask(request, JoinGroupResponse, 11, 5, self._joined, JOIN_TIMEOUT_S)

    def _joined(self, response: JoinGroupResponse) -> None:
        error = self.check(response.error_code, "joins")
        self.stage.note(f"{self.name} joins: {error.name} {response.generation_id} as {response.member_id}")
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self._id = response.member_id
            self.later(self.enter, 0.0)
        elif error is ErrorCode.NONE:
            self._id, self._generation = response.member_id, response.generation_id
            ids = sorted(member.member_id for member in response.members)
            self.later(lambda connection: self._sync(connection, ids), self.random.between(0.0, 0.05))
        else:
            self._begin_anew(error)

    def _sync(self, connection: ClientConnection, ids: list[str]) -> None:
        shares = {
            member: b",".join(b"%d" % p for p in range(place, PARTITIONS, len(ids))) for place, member in enumerate(ids)
        }
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._id,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=share) for m, share in shares.items()],
        )
        self.sent_at = self.now
        connection.ask(request, SyncGroupResponse, 14, 3, self._synced, JOIN_TIMEOUT_S)

    def _synced(self, response: SyncGroupResponse) -> None:
        error = self.check(response.error_code, "syncs")
        if error is ErrorCode.NONE:
            text = bytes(response.assignment)
            self.stage.note(f"{self.name} has {text.decode()} in generation {self._generation}")
            self.was_given({int(number) for number in text.split(b",") if number}, self._generation)
            self.later(self._work, BEAT_S)
        else:
            self._begin_anew(error)

    def _work(self, connection: ClientConnection) -> None:
        if self.leaving:
            self.depart(connection)
            return
        self.commit(connection)
        request = HeartbeatRequest(group_id=self.group, generation_id=self._generation, member_id=self._id)
        self.sent_at = self.now
        connection.ask(request, HeartbeatResponse, 12, 3, self._beaten)

    def _beaten(self, response: HeartbeatResponse) -> None:
        error = self.check(response.error_code, "is alive")
        if error is ErrorCode.NONE:
            self.stage.groups.saw_alive(self.group, self.name_and_id, self.sent_at)
            self.later(self._work, self.pause_s(BEAT_S))
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.later(self.enter, 0.0)
        elif error in LATER:
            self.later(self._work, RETRY_S)
        else:
            self._begin_anew(error)

    def _begin_anew(self, error: ErrorCode) -> None:
        self.give_back()
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self._id = ""
        self.later(self.enter, RETRY_S)

    def depart(self, connection: ClientConnection) -> None:
        self.give_back()
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self._id)])
        connection.ask(request, LeaveGroupResponse, 13, 4, self._departed)

    def _departed(self, response: LeaveGroupResponse) -> None:
        self.left = not response.error_code
        if not self.left:
            self.later(self.depart, RETRY_S)


class ConsumerMember(GroupMember):
    """It takes what it is given, and gives back what it must, some time later."""

    def __init__(self, world: Stage, name: str, random: SimRandom, group: str) -> None:
        self._lives = 0
        self._epoch = 0
        self._topic_id = bytes(16)
        self._says = False
        self._given: set[int] = set()
        super().__init__(world, name, random, group)

    @property
    def id(self) -> str:
        return f"{self.name.replace(' ', '-')}-{self._lives}"

    @property
    def epoch(self) -> int:
        return self._epoch

    def enter(self, connection: ClientConnection) -> None:
        self._lives += 1
        self._epoch, self._given, self._says = 0, set(), True
        self._beat(connection)

    def _work(self, connection: ClientConnection) -> None:
        if self.leaving:
            self.depart(connection)
            return
        for partition in sorted(self.owned - self._given):
            self.give_back(partition)
            self._says = True
        self.commit(connection)
        self._beat(connection)

    def _beat(self, connection: ClientConnection) -> None:
        owned = [TopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))] if self.owned else []
        first = self._epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=SESSION_MS if first else -1,
            subscribed_topic_names=[TOPIC] if first else None,
            topic_partitions=owned if first or self._says else None,
        )
        self._says = False
        self.sent_at = self.now
        connection.ask(request, ConsumerGroupHeartbeatResponse, 68, 1, self._beaten)

    def _beaten(self, response: ConsumerGroupHeartbeatResponse) -> None:
        error = self.check(response.error_code, "beats")
        if error is ErrorCode.NONE:
            if response.member_epoch < self._epoch:
                raise Violation(f"{self.group} took {self.id} back from epoch {self._epoch} to {response.member_epoch}")
            self._epoch = response.member_epoch
            self.stage.groups.saw_alive(self.group, self.name_and_id, self.sent_at)
            if response.assignment is not None:
                self._given = {p for topic in response.assignment.topic_partitions for p in topic.partitions}
                self.stage.note(f"{self.id} is given {sorted(self._given)} in epoch {self._epoch}")
                for topic in response.assignment.topic_partitions:
                    self._topic_id = topic.topic_id
                self._says |= bool(self._given - self.owned)
                self.was_given(self._given, None)
            self.later(self._work, self.pause_s(BEAT_S))
        elif error in (*LATER, *STORAGE):
            self._says = True
            self.later(self._work if self._epoch else self._beat, RETRY_S)
        else:
            self.stage.note(f"{self.id} is put out: {error.name}")
            self.give_back()
            self.later(self.enter, RETRY_S)

    def depart(self, connection: ClientConnection) -> None:
        self.give_back()
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.id, member_epoch=-1)
        connection.ask(request, ConsumerGroupHeartbeatResponse, 68, 1, self._departed)

    def _departed(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.left = not response.error_code or response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        if not self.left:
            self.later(self.depart, RETRY_S)
