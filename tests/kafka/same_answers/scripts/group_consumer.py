"""ConsumerGroupHeartbeat (KIP-848), in both versions, good and bad: what a member is told, and in which epoch.

When an assignment comes is a matter of time (it is computed apart from the heartbeats), so a member that waits for one
asks quietly, and only what it ends at is noted.
"""

import time
from random import Random
from typing import Any

from tests.group_requests import heartbeat_fields
from tests.kafka.same_answers.scripts.group_members import new_group
from tests.kafka.same_answers.scripts.group_offsets import commit, commit_topic
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey

KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
DEADLINE_S = 15.0
LEAVES, LEAVES_FOR_A_WHILE = -1, -2


class Reconciling:
    """A member that takes what it is given and says so."""

    def __init__(
        self, side: Side, group: str, topic: str, name: str, *, version: int = 1, quietly: bool = False, **first: Any
    ) -> None:
        self.side = side
        self.group = group
        self.version = version
        self.id = name if version >= 1 else ""
        self.owned: list[dict[str, Any]] = []
        self.first = {"subscribed_topic_names": [topic], **first}
        joins = self.fields(0, **self.first)
        answer = side.quietly(KEY, version, joins) if quietly else side.ask(KEY, version, joins, f"{name} joins")
        self.id = answer.member_id or self.id
        self.epoch = answer.member_epoch
        self._take(answer)

    def fields(self, epoch: int, **more: Any) -> dict[str, Any]:
        fields = heartbeat_fields(self.group, self.id, epoch, **more)
        if self.version < 1:
            fields.pop("subscribed_topic_regex", None)
        return fields

    def heartbeat(self, epoch: int | None = None, note: str = "", **more: Any) -> Any:
        """A heartbeat that is noted, and what it brings taken."""
        fields = self.fields(self.epoch if epoch is None else epoch, **more)
        answer = self.side.ask(KEY, self.version, fields, note)
        if answer.error_code == 0 and answer.member_epoch > 0:
            self.epoch = answer.member_epoch
            self._take(answer)
        return answer

    def settle(self, partitions: int, note: str = "settled", *others: "Reconciling") -> None:
        """Ask quietly until it owns so many partitions, while the `others` go on too; then once, noted."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for member in (self, *others):
                member.beat()
            if sum(len(each["partitions"]) for each in self.owned) == partitions and self.is_quiet(*others):
                break
            assert time.monotonic() < deadline, f"{self.side.name}: {self.id} doesn't get {partitions} partitions"
            time.sleep(0.02)
        self.heartbeat(note=note, topic_partitions=self.owned)

    def is_quiet(self, *others: "Reconciling") -> bool:
        return len({member.epoch for member in (self, *others)}) == 1

    def beat(self) -> None:
        """A quiet heartbeat: take what comes."""
        answer = self.side.quietly(KEY, self.version, self.fields(self.epoch, topic_partitions=self.owned))
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            self._take(answer)

    def _take(self, answer: Any) -> None:
        if answer.assignment is not None:
            self.owned = [
                {"topic_id": each.topic_id, "partitions": list(each.partitions)}
                for each in answer.assignment.topic_partitions
            ]


def bad_heartbeats(side: Side, rng: Random) -> None:
    topic = side.create(f"bad-beats-{rng.getrandbits(32):08x}", 2)
    for version in versions(KEY):
        group = new_group(side, rng)
        first = heartbeat_fields(group, "member" if version else "", 0, subscribed_topic_names=[topic])
        cases: dict[str, dict[str, Any]] = {
            "no group": {"group_id": ""},
            "a group of a blank": {"group_id": " "},
            "an epoch below all": {"member_epoch": -3},
            "no rebalance timeout": {"rebalance_timeout_ms": -1},
            "a rebalance timeout of 0": {"rebalance_timeout_ms": 0},
            "no topics": {"subscribed_topic_names": None},
            "an empty list of topics": {"subscribed_topic_names": []},
            "something owned": {"topic_partitions": [{"topic_id": side.topic_id(topic), "partitions": [0]}]},
            "nothing said of what it owns": {"topic_partitions": None},
            "an assignor that isn't there": {"server_assignor": "no-such-assignor"},
            "an assignor without a name": {"server_assignor": ""},
            "an instance without a name": {"instance_id": ""},
            "a rack without a name": {"rack_id": ""},
            "an epoch of its own": {"member_epoch": 5, "member_id": "nobody"},
            "leaving without a member": {"member_epoch": LEAVES, "member_id": ""},
            "leaving as nobody": {"member_epoch": LEAVES, "member_id": "nobody"},
            "leaving for a while without an instance": {"member_epoch": LEAVES_FOR_A_WHILE, "member_id": "nobody"},
        }
        if version >= 1:
            cases |= {
                "no member id": {"member_id": ""},
                "a pattern that doesn't compile": {"subscribed_topic_regex": "tide-[0-9", "subscribed_topic_names": []},
                "a pattern with a look-ahead": {"subscribed_topic_regex": "(?=a)b", "subscribed_topic_names": []},
                "a pattern with a back reference": {"subscribed_topic_regex": r"(a)\\1", "subscribed_topic_names": []},
            }
        for note, fields in cases.items():
            side.ask(KEY, version, first | {"group_id": f"{group}-{len(note)}"} | fields, note)


def a_life(side: Side, rng: Random) -> None:
    topic = side.create(f"life-{rng.getrandbits(32):08x}", 4)
    for version in versions(KEY):
        for assignor in (None, "range", "uniform"):
            group = new_group(side, rng)
            first = Reconciling(side, group, topic, "first", version=version, server_assignor=assignor)
            first.settle(4)
            describe(side, "alone", group)
            first.heartbeat(note="says nothing new")
            first.heartbeat(first.epoch + 1, note="an epoch to come")
            first.heartbeat(0, note="joins again", **first.first)
            first.beat()
            first.settle(4, "still there")
            second = Reconciling(side, group, topic, "second", version=version, server_assignor=assignor)
            second.settle(2, "shares", first)
            first.settle(2, "shares", second)
            if version >= 1:  # before, who gets what hangs on ids that the broker made
                describe(side, "shared", group)
            first.heartbeat(first.epoch - 1, note="a stale epoch")
            first.heartbeat(LEAVES, note="leaves")
            first.heartbeat(note="gone")
            second.settle(4, "alone again")
            second.heartbeat(LEAVES, note="leaves")
            describe(side, "empty", group)


def describe(side: Side, note: str, *groups: str) -> None:
    for version in versions(ApiKey.CONSUMER_GROUP_DESCRIBE):
        side.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, {"group_ids": list(groups)}, note)
    side.ask(ApiKey.DESCRIBE_GROUPS, 6, {"groups": list(groups)}, note)


def static_members(side: Side, rng: Random) -> None:
    topic = side.create(f"static-beats-{rng.getrandbits(32):08x}", 2)
    for version in versions(KEY):
        group = new_group(side, rng)
        first = Reconciling(side, group, topic, "first", version=version, instance_id="one")
        first.settle(2)
        other = heartbeat_fields(
            group, "second" if version else "", 0, subscribed_topic_names=[topic], instance_id="one"
        )
        side.ask(KEY, version, other, "an instance that is in use")
        first.heartbeat(note="without its instance")
        first.heartbeat(note="with another instance", instance_id="two")
        first.heartbeat(LEAVES_FOR_A_WHILE, note="leaves for a while", instance_id="one")
        describe(side, "away", group)
        second = Reconciling(side, group, topic, "second", version=version, instance_id="one")
        second.settle(2, "back")
        describe(side, "back", group)
        first.heartbeat(note="its old self", instance_id="one")
        second.heartbeat(LEAVES, note="leaves", instance_id="one")
        describe(side, "empty", group)


def commits(side: Side, rng: Random) -> None:
    topic = side.create(f"beat-commits-{rng.getrandbits(32):08x}", 2)
    for version in versions(ApiKey.OFFSET_COMMIT):
        member = Reconciling(side, new_group(side, rng), topic, "member")
        member.settle(2)
        good = [commit_topic(side, version, topic, (0, 5, ""))]
        for note, who in {
            "its own": (member.id, member.epoch),
            "a stale epoch": (member.id, member.epoch - 1),
            "a later epoch": (member.id, member.epoch + 1),
            "an unknown member": ("nobody", member.epoch),
            "no member": ("", -1),
        }.items():
            commit(side, version, member.group, good, note, who)
        member.heartbeat(LEAVES, note="leaves")
        commit(side, version, member.group, good, "gone", (member.id, member.epoch))
        commit(side, version, member.group, good, "by hand, after it has gone")


def patterns(side: Side, rng: Random) -> None:
    tag = f"{rng.getrandbits(32):08x}"
    topic = side.create(f"pattern-{tag}-a", 2)
    side.create(f"other-{tag}", 2)
    group = new_group(side, rng)
    more = {"subscribed_topic_regex": f"pattern-{tag}-[a-z]", "subscribed_topic_names": []}
    member = Reconciling(side, group, topic, "member", quietly=True, **more)
    member.settle(2)
    describe(side, "by a pattern", group)
    member.heartbeat(note="a pattern that doesn't compile", subscribed_topic_regex="[")
    both = {"subscribed_topic_regex": f"pattern-{tag}-[a-z]", "subscribed_topic_names": [f"other-{tag}"]}
    member.heartbeat(note="a name too", **both)
    member.settle(4, "both")
    describe(side, "both", group)
    member.heartbeat(LEAVES, note="leaves")


SCRIPTS = (bad_heartbeats, a_life, static_members, commits, patterns)
