"""ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups, in every version, good and bad."""

from random import Random
from typing import Any

from tests.kafka.same_answers.scripts.group_consumer import Reconciling
from tests.kafka.same_answers.scripts.group_members import Member, new_group
from tests.kafka.same_answers.scripts.group_offsets import commit, commit_topic
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey


class Cast:
    """A group of each kind: with a classic member, with a consumer, without members, and one that isn't there."""

    def __init__(self, side: Side, rng: Random) -> None:
        self.topic = side.create(f"cast-{rng.getrandbits(32):08x}", 2)
        self.classic = Member(side, new_group(side, rng, "classic"), self.topic, "classic")
        self.classic.enter(9, 5, 0, 1)
        self.consumer = Reconciling(side, new_group(side, rng, "consumer"), self.topic, "consumer")
        self.consumer.settle(2)
        self.simple = new_group(side, rng, "simple")
        commit(side, 8, self.simple, [commit_topic(side, 8, self.topic, (0, 5, ""))], "by hand")
        self.missing = new_group(side, rng, "missing")

    @property
    def groups(self) -> list[str]:
        return [self.classic.group, self.consumer.group, self.simple, self.missing]

    def close(self) -> None:
        self.classic.close()


def listed(side: Side, rng: Random) -> None:
    cast = Cast(side, rng)
    for version in versions(ApiKey.LIST_GROUPS):
        filters: dict[str, dict[str, Any]] = {"all": {}}
        if version >= 4:
            filters |= {
                "stable": {"states_filter": ["Stable"]},
                "stable, in small letters": {"states_filter": ["stable"]},
                "empty or dead": {"states_filter": ["Empty", "Dead"]},
                "of no state": {"states_filter": ["Tired"]},
            }
        if version >= 5:
            filters |= {
                "classic": {"types_filter": ["classic"]},
                "consumers": {"types_filter": ["Consumer"]},
                "of no type": {"types_filter": ["share-nothing"]},
                "empty classic": {"types_filter": ["classic"], "states_filter": ["Empty"]},
            }
        for note, fields in filters.items():
            side.asked.add((ApiKey.LIST_GROUPS, version))
            answer = side.normaliser.response(
                ApiKey.LIST_GROUPS, side.connection.ask(ApiKey.LIST_GROUPS, version, fields)
            )
            ours = [group for group in answer["groups"] if group["group_id"] in cast.groups]
            side.note(f"LIST_GROUPS v{version} {note}", [answer["error_code"], ours])
    cast.close()


def described(side: Side, rng: Random) -> None:
    cast = Cast(side, rng)
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        for note, groups in (("each", cast.groups), ("nothing", []), ("twice", [cast.simple] * 2), ("no name", [""])):
            for operations in (False, True) if version >= 3 else (False,):
                fields: dict[str, Any] = {"groups": groups}
                if version >= 3:
                    fields["include_authorized_operations"] = operations
                side.ask(ApiKey.DESCRIBE_GROUPS, version, fields, f"{note} {operations}")
    for version in versions(ApiKey.CONSUMER_GROUP_DESCRIBE):
        for note, groups in (("each", cast.groups), ("nothing", []), ("twice", [cast.simple] * 2), ("no name", [""])):
            for operations in (False, True):
                fields = {"group_ids": groups, "include_authorized_operations": operations}
                side.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, fields, f"{note} {operations}")
    cast.close()


def deleted(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.DELETE_GROUPS):
        cast = Cast(side, rng)
        side.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": cast.groups}, "each")
        side.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": [cast.simple]}, "once more")
        side.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": []}, "nothing")
        side.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": [""]}, "no name")
        cast.classic.leave()
        cast.consumer.heartbeat(-1, note="leaves")
        side.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": cast.groups}, "when all are gone")
        side.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": cast.groups}, "deleted")
        cast.close()


SCRIPTS = (listed, described, deleted)
