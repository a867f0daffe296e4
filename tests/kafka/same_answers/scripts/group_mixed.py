"""Group requests at random, right and wrong, to groups of both protocols that share a topic."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.group_requests import heartbeat_fields
from tests.kafka.same_answers.scripts.group_consumer import KEY, LEAVES
from tests.kafka.same_answers.scripts.group_members import Member, new_group
from tests.kafka.same_answers.scripts.group_offsets import commit, commit_topic, fetch
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey

TURNS = 120


class Mix:
    """Three groups, each with at most one member: nobody waits for anybody, and nobody's share hangs on how the id that
    the broker made for him is hashed. What is asked is chosen by the seed alone, but for ids and epochs.
    """

    def __init__(self, side: Side, rng: Random) -> None:
        self.side = side
        self.rng = rng
        self.topic = side.create(f"group-mix-{rng.getrandbits(32):08x}", 3)
        self.groups = [new_group(side, rng, "mix") for _ in range(3)]
        self.classic = {group: Member(side, group, self.topic, "classic") for group in self.groups}
        self.epochs: dict[str, int] = dict.fromkeys(self.groups, 0)

    def group(self) -> str:
        return self.rng.choice(self.groups)

    def version(self, key: ApiKey, lowest: int = 0) -> int:
        return max(self.rng.choice(versions(key)), lowest)

    def join(self) -> None:
        member, version = self.classic[self.group()], self.version(ApiKey.JOIN_GROUP, 4)
        if self.epochs[member.group]:
            self._depart(member.group)
        if not member.id:
            member.ask(ApiKey.JOIN_GROUP, version, member.join_fields(version), "for an id")
        member.ask(ApiKey.JOIN_GROUP, version, member.join_fields(version))
        # The group that was there before in the other protocol is gone when that is committed, maybe after the answer.
        asked = {"groups": [{"group_id": member.group, "topics": None}], "require_stable": True}
        self.side.quietly(ApiKey.OFFSET_FETCH, 8, asked)

    def sync(self) -> None:
        member, version = self.classic[self.group()], self.version(ApiKey.SYNC_GROUP)
        slip = self.rng.choice([0, 0, 0, 1, -1])
        member.sync(version, {member.id: (0, 1)}, f"slip {slip}", generation_id=member.generation + slip)

    def beat(self) -> None:
        member, slip = self.classic[self.group()], self.rng.choice([0, 0, 0, 1, -1])
        generation = member.generation + slip
        member.heartbeat(self.version(ApiKey.HEARTBEAT), f"slip {slip}", generation_id=generation)

    def leave(self) -> None:
        self._leave(self.classic[self.group()])

    def _leave(self, member: Member) -> None:
        member.leave(self.version(ApiKey.LEAVE_GROUP))
        member.id, member.generation = "", -1

    def reconcile(self) -> None:
        group = self.group()
        slip = self.rng.choice([0, 0, 0, 0, 1, -1])
        epoch = max(self.epochs[group] + slip, 0)
        if epoch == 0 and self.classic[group].id:
            self._leave(self.classic[group])
        more: dict[str, Any] = {"subscribed_topic_names": [self.topic]} if epoch == 0 else {}
        answer = self.side.ask(KEY, 1, heartbeat_fields(group, "consumer", epoch, **more), f"slip {slip}")
        if answer.error_code == 0:
            self.epochs[group] = answer.member_epoch

    def depart(self) -> None:
        self._depart(self.group())

    def _depart(self, group: str) -> None:
        self.side.ask(KEY, 1, heartbeat_fields(group, "consumer", LEAVES), "leaves")
        self.epochs[group] = 0

    def commit(self) -> None:
        group, version = self.group(), self.version(ApiKey.OFFSET_COMMIT)
        member = self.classic[group]
        who = self.rng.choice(
            [("", -1), (member.id, member.generation), ("consumer", self.epochs[group]), ("nobody", 3)]
        )
        part = (self.rng.choice([1, 2, 7]), self.rng.randint(-1, 50), self.rng.choice(["", "a note", "x" * 5000]))
        good = (0, self.rng.randint(0, 50), "")  # a commit of nothing makes a group in Kafka, and none here
        topics = [commit_topic(self.side, version, self.topic, good, part)]
        commit(self.side, version, group, topics, f"{part[:2]} {len(part[2])}", who)

    def fetch(self) -> None:
        version = self.version(ApiKey.OFFSET_FETCH, 2)
        topics = self.rng.choice([None, {self.topic: [0, 1, 2]}, {self.topic: [9]}])
        fetch(self.side, version, topics, "", *self.rng.sample(self.groups, 2 if version >= 8 else 1))

    def forget(self) -> None:
        parts = [{"partition_index": self.rng.randint(0, 3)}]
        fields = {"group_id": self.group(), "topics": [{"name": self.topic, "partitions": parts}]}
        self.side.ask(ApiKey.OFFSET_DELETE, 0, fields)

    def describe(self) -> None:
        self.side.ask(ApiKey.DESCRIBE_GROUPS, self.version(ApiKey.DESCRIBE_GROUPS), {"groups": self.groups})
        version = self.version(ApiKey.CONSUMER_GROUP_DESCRIBE)
        self.side.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, {"group_ids": self.groups})

    def delete(self) -> None:
        version = self.version(ApiKey.DELETE_GROUPS)
        self.side.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": [self.group()]})

    def close(self) -> None:
        for member in self.classic.values():
            member.close()


def turns(side: Side, rng: Random) -> None:
    mix = Mix(side, rng)
    plays: list[Callable[[], None]] = [mix.commit] * 6 + [mix.fetch] * 3 + [mix.beat] * 2 + [mix.sync] * 2
    plays += [mix.join] * 2 + [mix.reconcile] * 4 + [mix.leave, mix.depart, mix.forget, mix.describe, mix.delete]
    for _ in range(TURNS):
        rng.choice(plays)()
    mix.describe()
    fetch(side, 8, None, "at the end", *mix.groups)
    mix.close()


SCRIPTS = (turns,)
