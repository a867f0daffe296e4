"""Consumer groups: listed, described with how far behind they are, set to other offsets, deleted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import confluent_kafka.admin
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from tidelog.client.connect import REQUEST_TIMEOUT_S, knock, settings
from tidelog.client.errors import ClientError, from_kafka
from tidelog.client.lag import Progress, first_unread_ms
from tidelog.client.start import Start
from tidelog.wire.topic_partition import TopicPartition

library: Any = confluent_kafka.admin  # its own types are partial, so they end here

DESCRIBED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: list[TopicPartition]
    target: list[TopicPartition] | None = None
    """Where the broker is still moving partitions: what the member will have."""


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    state: str
    """stable, rebalancing, empty or dead. The library has one word for the steps of a rebalance, so have we."""
    type: str
    """classic, or consumer (KIP-848)."""
    assignor: str = ""
    coordinator: str = ""
    members: list[Member] = field(default_factory=list[Member])


@dataclass(frozen=True, slots=True)
class Change:
    """What a reset does to one partition."""

    topic: str
    partition: int
    old: int | None
    new: int


class Groups:
    """A connection for the administration of groups; every failure is a ClientError."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        knock(bootstrap)
        self._client: Any = library.AdminClient(settings(bootstrap))

    def names(self) -> list[str]:
        return sorted(each.group_id for each in self._listed())

    def all(self) -> list[Group]:
        """Every group with its members, by name."""
        names = self.names()
        groups: list[Group] = []
        for place in range(0, len(names), DESCRIBED_AT_ONCE):
            groups += self._described(names[place : place + DESCRIBED_AT_ONCE])
        return groups

    def group(self, name: str) -> Group:
        [described] = self._described([name])
        if described.state == "dead":
            raise unknown_group(name)
        return described

    def progress(self, groups: Sequence[Group]) -> list[list[Progress]]:
        """Of each group, every partition that it has an offset of or a member for: committed, end, lag, time behind."""
        committed = self._committed([group.name for group in groups])
        assigned = [{place for member in group.members for place in member.partitions} for group in groups]
        places = sorted({place for each in (*committed, *assigned) for place in each})
        starts, unreachable = self._offsets(places, library.OffsetSpec.earliest())
        stable_ends, _ = self._offsets(places, library.OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        ends, unreachable_too = self._offsets(places, library.OffsetSpec.latest())
        unreachable |= unreachable_too

        def standing(place: TopicPartition, offset: int | None) -> Progress:
            gone = place not in ends and place not in unreachable
            return Progress(*place, offset, starts.get(place), stable_ends.get(place), ends.get(place), gone)

        by_group = [
            [standing(place, at.get(place)) for place in sorted(at.keys() | has)]
            for at, has in zip(committed, assigned, strict=True)
        ]
        unread = {(p.place, p.begins) for of_group in by_group for p in of_group if p.begins is not None and p.lag}
        ages_ms = first_unread_ms(self._bootstrap, unread)
        return [
            [
                replace(p, behind_ms=0 if p.lag == 0 else ages_ms.get((p.place, p.begins or 0)) if p.lag else None)
                for p in of_group
            ]
            for of_group in by_group
        ]

    def committed(self, name: str) -> dict[TopicPartition, int]:
        """The offsets that a group committed; none for a group that isn't there."""
        return self._committed([name])[0]

    def _committed(self, names: Sequence[str]) -> list[dict[TopicPartition, int]]:
        answers = [
            self._client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name)], request_timeout=REQUEST_TIMEOUT_S
            )[name]
            for name in names
        ]
        by_group: list[dict[TopicPartition, int]] = []
        for name, answer in zip(names, answers, strict=True):
            offsets = self._wait(answer, f"ask for the offsets of group {name}").topic_partitions or ()
            by_group.append({(each.topic, each.partition): each.offset for each in offsets if each.offset >= 0})
        return by_group

    def plan(self, name: str, where: "Start | Shift", topics: Sequence[tuple[str, Sequence[int]]] = ()) -> list[Change]:
        """What a reset would change, and where to; ClientError where the group has members, or a partition can't be
        reached. One whose topic was deleted is left out.

        `topics` with their partitions (none: all of them); without, everything that the group has an offset of. An
        offset outside of what a partition holds becomes the nearest one that it does.
        """
        self._refuse_members(name)
        committed = self.committed(name)
        places = self._chosen(topics) if topics else sorted(committed)
        if not places:
            raise ClientError(
                f"group {name} has no offsets to reset", "name the topics to begin with: --topic NAME, once for each"
            )
        starts, unreachable = self._offsets(places, library.OffsetSpec.earliest())
        ends, unreachable_too = self._offsets(places, library.OffsetSpec.latest())
        self._refuse_unreachable(name, places, unreachable | unreachable_too)
        wanted = self._wanted(where, places, committed, starts, ends)
        return [
            Change(*place, committed.get(place), min(max(wanted[place], starts[place]), ends[place]))
            for place in places
            if place in starts and place in ends
        ]

    def reset(self, name: str, changes: Iterable[Change]) -> None:
        offsets = [ConfluentPartition(each.topic, each.partition, each.new) for each in changes]
        asked = [ConsumerGroupTopicPartitions(name, offsets)]
        answer = self._client.alter_consumer_group_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)[name]
        doing = f"reset group {name}"
        for done in self._wait(answer, doing).topic_partitions or ():
            if done.error is None:
                continue
            if done.error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS):
                raise members_in_the_way(name, "it got members just now")
            raise from_kafka(done.error, self._bootstrap, f"{doing}: {done.topic}-{done.partition}")

    def delete(self, name: str) -> None:
        answer = self._client.delete_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)[name]
        try:
            answer.result(REQUEST_TIMEOUT_S * 2)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                raise unknown_group(name) from None
            if code == KafkaError.NON_EMPTY_GROUP:
                raise members_in_the_way(name, "it has members") from None
            raise from_kafka(error, self._bootstrap, f"delete group {name}") from None

    def _listed(self) -> list[Any]:
        listing = self._wait(self._client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), "list the groups")
        for error in listing.errors or ():
            raise from_kafka(error, self._bootstrap, "list the groups")
        return listing.valid or []

    def _described(self, names: list[str]) -> list[Group]:
        if not names:
            return []
        answers = self._client.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S)
        return [_group(name, self._wait(answers[name], f"describe group {name}")) for name in names]

    def _refuse_members(self, name: str) -> None:
        [group] = self._described([name])
        if group.members:
            count = len(group.members)
            raise members_in_the_way(name, f"it has {count} member{'s' if count != 1 else ''} and is {group.state}")

    def _refuse_unreachable(self, name: str, places: list[TopicPartition], unreachable: set[TopicPartition]) -> None:
        for topic, partition in sorted(unreachable):
            others = ",".join(str(each) for of, each in places if of == topic and (of, each) not in unreachable)
            raise ClientError(
                f"cannot reset group {name}: {topic}-{partition} can't be reached now",
                "`tidelog status` says why" + (f"; --topic {topic}:{others} leaves it out" if others else ""),
            )

    def _chosen(self, topics: Sequence[tuple[str, Sequence[int]]]) -> list[TopicPartition]:
        there = self._client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        places: set[TopicPartition] = set()
        for topic, partitions in topics:
            if topic not in there:
                raise ClientError(f"there is no topic {topic}", "`tidelog topic list` shows the topics there are")
            count = len(there[topic].partitions)
            for partition in partitions:
                if partition >= count:
                    raise ClientError(f"{topic} has no partition {partition}: it has {count}, numbered from 0")
            places |= {(topic, partition) for partition in (partitions or range(count))}
        return sorted(places)

    def _wanted(
        self,
        where: "Start | Shift",
        places: list[TopicPartition],
        committed: dict[TopicPartition, int],
        starts: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        if isinstance(where, Shift):
            missing = [place for place in places if place not in committed]
            if missing:
                topic, partition = missing[0]
                raise ClientError(
                    f"the group has no offset in {topic}-{partition} that could be shifted", "use --to there"
                )
            return {place: committed[place] + where.by for place in places}
        if where.kind == "offset":
            return dict.fromkeys(places, where.value)
        if where.kind == "time":
            by_time, _ = self._offsets(places, library.OffsetSpec.for_timestamp(where.value))
            return {place: ends.get(place, 0) if by_time.get(place, -1) < 0 else by_time[place] for place in places}
        if where.kind == "last":
            return {place: ends.get(place, 0) - where.value for place in places}
        return starts if where.kind == "beginning" else ends

    def _offsets(
        self,
        places: Iterable[TopicPartition],
        which: object,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """The offsets of those partitions that are there, and those that are but can't be reached just now."""
        asked = {ConfluentPartition(*place): which for place in places}
        offsets: dict[TopicPartition, int] = {}
        unreachable: set[TopicPartition] = set()
        if not asked:
            return offsets, unreachable
        answers = self._client.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S)
        for place, answer in answers.items():
            try:
                offsets[place.topic, place.partition] = answer.result(REQUEST_TIMEOUT_S * 2).offset
            except KafkaException as error:
                code = error.args[0].code()
                if code in UNREACHABLE:
                    unreachable.add((place.topic, place.partition))
                elif code not in GONE:
                    raise from_kafka(error, self._bootstrap, f"ask for the offsets of {place.topic}") from None
        return offsets, unreachable

    def _wait(self, answer: Any, doing: str) -> Any:
        try:
            return answer.result(REQUEST_TIMEOUT_S * 2)
        except KafkaException as error:
            raise from_kafka(error, self._bootstrap, doing) from None


@dataclass(frozen=True, slots=True)
class Shift:
    """So many messages on, or back where negative."""

    by: int


GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
UNREACHABLE = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
)


def unknown_group(name: str) -> ClientError:
    return ClientError(f"there is no group {name}", "`tidelog group list` shows the groups there are")


def members_in_the_way(name: str, why: str) -> ClientError:
    return ClientError(
        f"group {name} can't be changed: {why}",
        f"stop its consumers first; `tidelog group describe {name}` shows where they run. One that died is let go of "
        "after its session timeout",
    )


def _group(name: str, description: Any) -> Group:
    kind = description.type.name.lower()
    coordinator = f"{description.coordinator.host}:{description.coordinator.port}" if description.coordinator else ""
    members = sorted(
        (_member(member) for member in description.members), key=lambda member: (member.client_id, member.id)
    )
    return Group(name, _state(description.state.name), kind, description.partition_assignor, coordinator, members)


def _state(name: str) -> str:
    """UNKNOWN is what the library makes of Assigning and Reconciling."""
    return name.lower() if name in ("STABLE", "EMPTY", "DEAD") else "rebalancing"


def _member(description: Any) -> Member:
    partitions = _places(description.assignment)
    target = None if description.target_assignment is None else _places(description.target_assignment)
    return Member(
        id=description.member_id,
        client_id=description.client_id,
        host=description.host.lstrip("/"),
        instance_id=description.group_instance_id or None,
        partitions=partitions,
        target=target if target != partitions else None,
    )


def _places(assignment: Any) -> list[TopicPartition]:
    return sorted((each.topic, each.partition) for each in assignment.topic_partitions)
