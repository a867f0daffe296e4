"""A group whose members hand partitions to each other, at random, right and wrong: joins, heartbeats that confirm what
was given up or don't, subscriptions that change, static members that come back, and one that speaks the classic
protocol.

Members name themselves, or have instance ids, and the assignor is `range`: so that who gets what is the same on both
sides. Expressions are left out: Kafka resolves them when it likes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.group_requests import assignment, heartbeat_fields, subscription
from tests.kafka.same_answers.scripts.group_members import new_group
from tests.kafka.same_answers.side import Side
from tidelog.coordinator.group.consumer.embedded import read_assignment
from tidelog.wire.keys import ApiKey

TURNS = 150
BEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
LEAVES, RESTS = -1, -2
Parts = Mapping[str, tuple[int, ...]]


@dataclass(slots=True)
class Hand:
    """A member of the consumer protocol, as it knows itself."""

    name: str
    instance: str | None = None
    lives: int = 0
    epoch: int = 0
    has: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @property
    def id(self) -> str:
        return f"{self.name}-{self.lives}"


class Crew:
    def __init__(self, side: Side, rng: Random) -> None:
        self.side = side
        self.rng = rng
        tag = f"{rng.getrandbits(32):08x}"
        self.topics = [side.create(f"hands-{name}-{tag}", count) for name, count in (("a", 1), ("b", 3), ("c", 4))]
        self.names = {side.topic_id(topic): topic for topic in self.topics}
        self.group = new_group(side, rng, "hands")
        self.hands = [Hand("ann"), Hand("ben"), Hand("cat", "i-cat"), Hand("dan", "i-dan")]
        self.classic_id = ""
        self.generation = -1

    # -- members of the consumer protocol

    def some_topics(self) -> list[str]:
        return self.rng.sample(self.topics, self.rng.randint(1, 3))

    def join(self) -> None:
        hand = self.rng.choice(self.hands)
        if self.rng.random() < 0.3:
            hand.lives += 1
        more = {"subscribed_topic_names": self.some_topics(), "rebalance_timeout_ms": 60_000}
        self.beat(hand, 0, {}, "joins", **more)

    def go_on(self) -> None:
        hand = self.rng.choice(self.hands)
        slip = self.rng.choice([0] * 9 + [1, -1])
        uses: Parts | None = self.rng.choice((None, hand.has, hand.has, self._less(hand), {}))
        self.beat(hand, hand.epoch + slip, uses, f"slip {slip}")

    def subscribe(self) -> None:
        hand = self.rng.choice(self.hands)
        self.beat(hand, hand.epoch, hand.has, "subscribes", subscribed_topic_names=self.some_topics())

    def leave(self) -> None:
        hand = self.rng.choice(self.hands)
        epoch = self.rng.choice((LEAVES, RESTS)) if hand.instance else LEAVES
        self.beat(hand, epoch, None, "leaves" if epoch == LEAVES else "rests")

    def _less(self, hand: Hand) -> Parts:
        return {topic: parts[: self.rng.randint(0, len(parts))] for topic, parts in sorted(hand.has.items())}

    def beat(self, hand: Hand, epoch: int, uses: Parts | None, note: str, **more: Any) -> None:
        owned = None
        if uses is not None:
            owned = [
                {"topic_id": self.side.topic_id(topic), "partitions": list(parts)}
                for topic, parts in uses.items()
                if parts
            ]
        more |= {
            "instance_id": hand.instance,
            "topic_partitions": owned,
            "server_assignor": "range" if not epoch else None,
        }
        fields = heartbeat_fields(self.group, hand.id, epoch, **more)
        answer = self.side.quietly(BEAT, 1, fields)
        told = None
        if answer.assignment is not None:
            told = {
                self.names[one.topic_id]: tuple(sorted(one.partitions)) for one in answer.assignment.topic_partitions
            }
        shown = {} if uses is None else {topic: parts for topic, parts in uses.items() if parts}
        self.note(
            f"{hand.id} {note} in {epoch} with {sorted(shown.items())}", answer.error_code, answer.member_epoch, told
        )
        if answer.error_code == 0:
            hand.epoch = max(answer.member_epoch, 0)
            hand.has = {} if epoch < 0 else hand.has if told is None else told

    # -- one of the classic protocol

    def classic_join(self) -> None:
        known = self.rng.random() < 0.6
        fields = {
            "group_id": self.group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": self.classic_id if known else "",
            "group_instance_id": "i-old",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(*self.some_topics())}],
        }
        answer = self.side.quietly(ApiKey.JOIN_GROUP, 9, fields)
        self.note(f"the old one joins {'again' if known else 'anew'}", answer.error_code, answer.generation_id)
        if answer.error_code == 0:
            self.classic_id, self.generation = answer.member_id, answer.generation_id
            if answer.leader == answer.member_id and answer.members:
                self.classic_sync()

    def classic_sync(self) -> None:
        given = [{"member_id": self.classic_id, "assignment": assignment(self.topics[0], 0)}]
        fields = self._classic() | {"protocol_type": "consumer", "protocol_name": "range", "assignments": given}
        answer = self.side.quietly(ApiKey.SYNC_GROUP, 5, fields)
        told = read_assignment(answer.assignment).assigned_partitions if answer.error_code == 0 else []
        self.note("the old one syncs", answer.error_code, sorted((one.topic, sorted(one.partitions)) for one in told))

    def classic_beat(self) -> None:
        self.note("the old one beats", self.side.quietly(ApiKey.HEARTBEAT, 4, self._classic()).error_code)

    def classic_leave(self) -> None:
        members = [{"member_id": "", "group_instance_id": "i-old"}]
        answer = self.side.quietly(ApiKey.LEAVE_GROUP, 5, {"group_id": self.group, "members": members})
        self.note("the old one leaves", answer.error_code, [one.error_code for one in answer.members])

    def _classic(self) -> dict[str, Any]:
        who = {"member_id": self.classic_id, "group_instance_id": "i-old"}
        return {"group_id": self.group, "generation_id": self.generation, **who}

    # -- offsets, and what others see

    def commit(self) -> None:
        hand = self.rng.choice(self.hands)
        epoch = max(hand.epoch + self.rng.choice((0, 0, 0, 1, -1, -2)), -1)
        topic = self.rng.choice(self.topics)
        parts = [{"partition_index": index, "committed_offset": 7} for index in range(self.rng.randint(1, 3))]
        fields = {"group_id": self.group, "member_id": hand.id, "generation_id_or_member_epoch": epoch}
        asked = fields | {"topics": [{"name": topic, "partitions": parts}]}
        answer = self.side.quietly(ApiKey.OFFSET_COMMIT, 9, asked)
        codes = sorted((one.partition_index, one.error_code) for each in answer.topics for one in each.partitions)
        self.note(f"{hand.id} commits in {epoch}", codes)

    def describe(self) -> None:
        [group] = self.side.quietly(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [self.group]}).groups
        members = sorted(
            (
                one.instance_id or one.member_id,
                one.member_epoch,
                one.member_type,
                tuple(sorted(one.subscribed_topic_names)),
                self._parts(one.assignment),
                self._parts(one.target_assignment),
            )
            for one in group.members
        )
        epochs = (group.group_epoch, group.assignment_epoch) if group.error_code == 0 else ()
        self.note("describe", group.error_code, group.group_state, epochs, members)
        [old] = self.side.quietly(ApiKey.DESCRIBE_GROUPS, 6, {"groups": [self.group]}).groups
        self.note("describe as classic", old.error_code, old.group_state, len(old.members))

    def _parts(self, given: Any) -> list[tuple[str, list[int]]]:
        return sorted((one.topic_name, sorted(one.partitions)) for one in given.topic_partitions)

    def note(self, label: str, *answer: Any) -> None:
        self.side.note(label, list(answer))


def turns(side: Side, rng: Random) -> None:
    crew = Crew(side, rng)
    plays: list[Callable[[], None]] = [crew.join] * 4 + [crew.go_on] * 14 + [crew.subscribe] * 2 + [crew.leave]
    plays += [crew.classic_join, crew.classic_sync, crew.classic_beat, crew.commit, crew.commit, crew.describe]
    plays += [crew.classic_leave] if rng.random() < 0.5 else []
    for _ in range(TURNS):
        rng.choice(plays)()
    crew.describe()


SCRIPTS = (turns,)
