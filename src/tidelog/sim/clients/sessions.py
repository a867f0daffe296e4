"""A consumer with an incremental fetch session (KIP-227): it names what changed, and must miss and repeat nothing.

Topics are named (Fetch 7 to 12) or known by id (13 on). Now and then it forgets a partition, takes it up again, or
goes on with its session over a new connection, of which the broker may know nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.sim.clients.actor import Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.watchers import FATAL, fetched_bytes
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import check, iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tidelog.wire.topic_partition import TopicPartition
from tidelog.wire.uuids import ZERO_UUID

SESSION_LOST = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
BY_ID = 13


@dataclass(slots=True, eq=False)
class Followed:
    """A partition, under the name that the history knows it by: its topic's, or its id in hex where that is given.

    `in_session`: the session has it as it is.
    """

    topic: str
    partition: int
    topic_id: bytes = ZERO_UUID
    position: int = 0
    max_bytes: int = 1 << 20
    floor: int = 0
    in_session: bool = False
    wanted: bool = True


class SessionConsumer(Client):
    """Follows partitions to their end. `gone` is told of one that the broker doesn't know."""

    def __init__(
        self,
        world: ClientWorld,
        name: str,
        random: SimRandom,
        partitions: list[Followed],
        version: int,
        gone: Callable[[Followed], None] | None = None,
    ) -> None:
        self.followed = {(each.topic, each.partition): each for each in partitions}
        self._version = version
        self._gone = gone
        self._session = 0
        self._epoch = 0
        self._forgetting: list[Followed] = []
        super().__init__(world, name, random)

    def follow(self, new: Followed) -> None:
        self.followed[new.topic, new.partition] = new

    def drop(self, old: Followed) -> None:
        self.followed.pop((old.topic, old.partition), None)
        if old.in_session:
            self._forgetting.append(old)

    def caught_up(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(each.position >= ends.get(place, 0) for place, each in self.followed.items())

    def lost(self) -> None:
        """Whether the last request arrived isn't known: what it said is said again."""
        if self.random.chance(0.7):
            self._begin_anew()
        for each in self.followed.values():
            each.in_session = False

    def _begin_anew(self) -> None:
        self._session = self._epoch = 0
        self._forgetting.clear()
        for each in self.followed.values():
            each.in_session = False

    def connected(self, connection: ClientConnection) -> None:
        self._change_mind()
        named: dict[tuple[str, bytes], list[FetchPartition]] = {}
        for each in self.followed.values():
            known = self.world.history.of(each.topic, each.partition)
            each.floor = known.end
            if each.position > known.end:  # the page cache was lost
                each.position, each.in_session = known.end, False
            if each.wanted and not each.in_session:
                asked = FetchPartition(
                    partition=each.partition, fetch_offset=each.position, partition_max_bytes=each.max_bytes
                )
                named.setdefault((each.topic, each.topic_id), []).append(asked)
                each.in_session = True
        forgotten = [
            ForgottenTopic(topic=each.topic, topic_id=each.topic_id, partitions=[each.partition])
            for each in self._forgetting
        ]
        self._forgetting.clear()
        request = FetchRequest(
            max_wait_ms=self.random.choose((0, 50, 200)),
            min_bytes=self.random.choose((0, 1, 1)),
            max_bytes=self.random.choose((3000, 1 << 20)),
            session_id=self._session,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=name, topic_id=id, partitions=asked) for (name, id), asked in named.items()],
            forgotten_topics_data=forgotten,
        )
        connection.ask(request, FetchResponse, 1, self._version, self._answered)

    def _change_mind(self) -> None:
        """Forget a partition, take one up again, go on with other bounds."""
        for each in self.followed.values():
            if not each.wanted and self.random.chance(0.3):
                each.wanted = True
            elif each.in_session and self.random.chance(0.03):
                each.wanted = each.in_session = False
                self._forgetting.append(each)
            elif self.random.chance(0.03):
                each.max_bytes = self.random.choose((1, 300, 5000, 1 << 20))
                each.in_session = False

    def _answered(self, response: FetchResponse) -> None:
        code = ErrorCode(response.error_code)
        if code in SESSION_LOST:
            self.world.note(f"{self.name}: {code.name}")
            self._begin_anew()
        elif code:
            raise Violation(f"{self.name} got {code.name} for its session {self._session}")
        else:
            self._session = response.session_id
            self._epoch = self._epoch + 1 if self._session else 0
            for topic in response.responses:
                for data in topic.partitions:
                    self._look_at(topic.topic, topic.topic_id, data)
            if not self._session:
                self._begin_anew()
        self.later(self.connected, self.random.between(0.0, 0.05))

    def _look_at(self, name: str, topic_id: bytes, data: PartitionData) -> None:
        each = self.followed.get((topic_id.hex() if self._version >= BY_ID else name, data.partition_index))
        if each is None or not each.wanted:
            return  # it was dropped while the answer was on its way
        history = self.world.history
        if self.outdated and each.topic in history.powerless:
            each.in_session = False
            return
        if data.error_code:
            self._refused(each, ErrorCode(data.error_code))
            return
        history.saw_end(each.topic, each.partition, data.high_watermark, each.floor, "Fetch")
        before = each.position
        self._take(each, data)
        if each.position != before:
            each.in_session = False
        self.world.note(f"{self.name} {each.topic}-{each.partition} at {before}: {each.position} {data.high_watermark}")

    def _refused(self, each: Followed, code: ErrorCode) -> None:
        where, history = f"{each.topic}-{each.partition}", self.world.history
        self.world.note(f"{self.name} {where} at {each.position}: {code.name}")
        if code in UNKNOWN and self._gone is not None:
            self._gone(each)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE and history.may_be_gone(each.topic, each.partition, each.position):
            # Where it begins now isn't known; what is behind the end that was shown comes for sure.
            each.position = max(history.of(each.topic, each.partition).end, each.position)
        elif code in FATAL:
            raise Violation(f"{where} answered {code.name} to a session at {each.position}; {each.floor} was shown")
        each.in_session = False

    def _take(self, each: Followed, data: PartitionData) -> None:
        where, history = f"{each.topic}-{each.partition}", self.world.history
        buffer = fetched_bytes(data)
        try:
            for header in iterate(buffer):
                check(buffer, header, len(buffer))
                if header.next_offset <= each.position:
                    raise Violation(f"{where} gave offset {header.last_offset} again to a session at {each.position}")
                if header.base_offset > each.position:
                    raise Violation(f"{where} skipped from {each.position} to {header.base_offset} in a session")
                for record in records(buffer, header):
                    history.saw_fetched(each.topic, each.partition, record.offset, record.value or b"")
                    history.of(each.topic, each.partition).dates[record.offset] = record.timestamp
                each.position = header.next_offset
        except KafkaError as error:
            raise Violation(f"{where} gave a batch that can't be read: {error.message}") from None
