"""A consumer group without a broker: decisions and their records, on a clock that a test moves.

Every record goes through Kafka's encoding before it is folded, the state is checked after each decision, and a state
read back from all records must be the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.caller import Caller
from tidelog.coordinator.group.consumer.context import DecisionContext
from tidelog.coordinator.group.consumer.departures import fence, leave
from tidelog.coordinator.group.consumer.heartbeat import heartbeat
from tidelog.coordinator.group.consumer.regex import Matches
from tidelog.coordinator.group.consumer.state import ConsumerGroup, Member
from tidelog.coordinator.group.consumer.terms import Terms
from tidelog.coordinator.group.fold import fold
from tidelog.coordinator.group.migration import downgrade
from tidelog.coordinator.group.state import EMPTY, GroupsState
from tidelog.machine.machine import Position
from tidelog.metadata.chunks import chunked
from tidelog.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.wire.records.coordinator import OFFSETS_TOPIC, RecordTypes

GROUP = "scenario_run"
NOW_MS = 1_700_000_000_000
TYPES = RecordTypes(OFFSETS_TOPIC)
TERMS = Terms(45_000, 5_000, 0, 1000, ("uniform", "range"), 600_000, True, True, 1000)
CALLER = Caller("client", "/10.0.0.1")


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"\0")


def image_of(topics: Mapping[str, int], *, racks: Sequence[str] = (), offset: int = 1) -> ClusterImage:
    """Topics with their partition counts; with racks, partition n has its one replica in rack n modulo."""
    brokers = {
        index: BrokerImage(index, 0, bytes(16), (), {}, rack=rack, fenced=False) for index, rack in enumerate(racks)
    }
    found = {
        name: TopicImage(name, topic_id(name), chunked(_partition(index, len(racks) or 1) for index in range(count)))
        for name, count in topics.items()
    }
    by_id = {topic.id: topic for topic in found.values()}
    return ClusterImage(offset=offset, topics=found, topics_by_id=by_id, brokers=brokers)


def _partition(index: int, brokers: int) -> PartitionImage:
    broker = index % brokers
    return PartitionImage((broker,), (broker,), broker, 0, 0)


def encoded(entry: Entry) -> Entry:
    """As it is read back from the log."""
    value = None if entry.value is None else TYPES.encode_value(entry.value, entry.version)
    decoded = TYPES.decode(TYPES.encode_key(entry.key), value)
    assert decoded is not None
    return Entry(*decoded)


class GroupHarness:
    """The group and what its coordinator sees."""

    def __init__(self, topics: Mapping[str, int], terms: Terms = TERMS) -> None:
        self.image = image_of(topics)
        self.terms = terms
        self.now_ms = NOW_MS
        self.state: GroupsState = EMPTY
        self.log: list[Entry] = []
        self.compare_topics = True
        self.refresh_regexes = False
        self.matches = Matches()

    @property
    def group(self) -> ConsumerGroup:
        group = self.state.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def member(self, member_id: str) -> Member:
        return self.group.members[member_id]

    @property
    def context(self) -> DecisionContext:
        return DecisionContext(
            self.image, self.terms, self.now_ms, self.matches, downgrade, self.compare_topics, self.refresh_regexes
        )

    def write(self, entries: Sequence[Entry]) -> list[Entry]:
        """Fold them as they are read back; the state from the whole log is the same."""
        read = [encoded(entry) for entry in entries]
        self.log += read
        self.state = fold(self.state, read, Position(len(self.log) - 1, 0, self.now_ms))
        group = self.state.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            group.check_invariants()
        return list(entries)

    def reread(self) -> None:
        assert fold(EMPTY, self.log, Position(len(self.log) - 1, 0, 0)) == self.state

    def beat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
        group = self.state.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            if epoch:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, GROUP)
            group = ConsumerGroup(GROUP)
        entries, made = heartbeat(group, request, CALLER, self.context, lambda: "made-id")
        self.written = self.write(entries)
        self.made = made
        return made.response

    def join(self, member_id: str, *names: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        asked = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(names), "topic_partitions": []}
        return self.beat(member_id, 0, **{**asked, **fields})

    def leave(self, member_id: str, epoch: int = -1, instance_id: str | None = None) -> None:
        entries, _ = leave(self.group, member_id, instance_id, epoch, self.context)
        self.written = self.write(entries)

    def fence(self, *member_ids: str) -> None:
        entries, _ = fence(self.group, [self.member(one) for one in member_ids], self.context)
        self.written = self.write(entries)

    def has(self, **topics: int) -> None:
        """The cluster's topics change."""
        self.image = replace(image_of(topics), offset=self.image.offset + 1)


def owned(**topics: Sequence[int]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id(name), partitions=list(found)) for name, found in topics.items()]


def told(response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """The assignment in a response, by topic name; None where it tells none."""
    if response.assignment is None:
        return None
    return {one.topic_id.lstrip(b"\0").decode(): sorted(one.partitions) for one in response.assignment.topic_partitions}
