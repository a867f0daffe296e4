"""OffsetCommit, OffsetFetch and OffsetDelete, in every version, good and bad."""

from random import Random
from typing import Any

from tests.kafka.same_answers.scripts.group_members import Member, new_group
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey

NO_SUCH_ID = bytes(range(1, 17))
METADATA_MAX = 4096


def commit_topic(side: Side, version: int, topic: str, *parts: tuple[int, int, str | None]) -> dict[str, Any]:
    name: dict[str, Any] = {"topic_id": side.topic_id(topic)} if version >= 10 else {"name": topic}
    partitions: list[dict[str, Any]] = []
    for partition, offset, metadata in parts:
        part: dict[str, Any] = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_metadata": metadata,
        }
        partitions.append(part | ({"committed_leader_epoch": 0} if version >= 6 else {}))
    return name | {"partitions": partitions}


def commit(
    side: Side,
    version: int,
    group: str,
    topics: list[dict[str, Any]],
    note: str,
    member: tuple[str, int] = ("", -1),
    instance: str | None = None,
) -> None:
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": member[1],
        "member_id": member[0],
        "topics": topics,
    }
    if version >= 7:
        fields["group_instance_id"] = instance
    side.ask(ApiKey.OFFSET_COMMIT, version, fields, note)


def fetch(side: Side, version: int, topics: dict[str, list[int]] | None, note: str, *groups: str, **more: Any) -> None:
    if version >= 8:
        asked: list[dict[str, Any]] | None = None
        if topics is not None:
            asked = [
                ({"topic_id": side.topic_id(name)} if version >= 10 else {"name": name})
                | {"partition_indexes": indexes}
                for name, indexes in topics.items()
            ]
        member = {"member_id": more.pop("member_id", None), "member_epoch": more.pop("member_epoch", -1)}
        one = {"topics": asked} | (member if version >= 9 else {})
        fields: dict[str, Any] = {"groups": [{"group_id": group, **one} for group in groups], **more}
    else:
        named = None if topics is None else [{"name": n, "partition_indexes": i} for n, i in topics.items()]
        fields = {"group_id": groups[0], "topics": named, **more}
    side.ask(ApiKey.OFFSET_FETCH, version, fields, note)


def commits(side: Side, rng: Random) -> None:
    """Without members: what a consumer does that assigns itself its partitions."""
    topic = side.create(f"commits-{rng.getrandbits(32):08x}", 3)
    side.normaliser.learn("no-such-topic", NO_SUCH_ID)
    for version in versions(ApiKey.OFFSET_COMMIT):
        group = new_group(side, rng)
        unknown = {"topic_id": NO_SUCH_ID} if version >= 10 else {"name": "no-such-topic"}
        unknown |= {"partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
        good = commit_topic(side, version, topic, (0, 5, "a note"), (2, 7, ""))
        commit(side, version, group, [good], "two partitions")
        commit(side, version, group, [commit_topic(side, version, topic, (0, 3, None))], "back, null metadata")
        commit(side, version, group, [commit_topic(side, version, topic, (9, 3, ""))], "no such partition")
        commit(side, version, group, [commit_topic(side, version, topic, (-1, 3, ""))], "partition -1")
        commit(side, version, group, [commit_topic(side, version, topic, (1, -1, ""))], "offset -1")
        commit(side, version, group, [commit_topic(side, version, topic, (1, -7, ""))], "offset -7")
        longest = "x" * METADATA_MAX
        commit(side, version, group, [commit_topic(side, version, topic, (1, 1, longest))], "longest metadata")
        too_long = commit_topic(side, version, topic, (0, 9, longest + "x"), (2, 9, ""))
        commit(side, version, group, [too_long], "metadata too large")
        commit(side, version, group, [unknown], "no such topic")
        commit(
            side, version, group, [unknown, commit_topic(side, version, topic, (0, 11, ""))], "one good, one unknown"
        )
        commit(side, version, group, [], "nothing")
        commit(side, version, group, [good], "a member of nobody", ("nobody", 1))
        commit(side, version, group, [good], "a generation without a member", ("", 1))
        commit(side, version, group, [good], "a member without a generation", ("nobody", -1))
        commit(side, version, "", [good], "no group")
        fetch(side, min(version, 9), None if version >= 2 else {}, "all of it", group)
        if version >= 7:
            commit(side, version, group, [good], "an instance of nobody", ("nobody", 1), "instance")
    # The group without a name is there now, on whichever side has played this; other scripts ask for it.
    side.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [""]}, "no group")


def commits_of_members(side: Side, rng: Random) -> None:
    topic = side.create(f"member-commits-{rng.getrandbits(32):08x}", 3)
    for version in versions(ApiKey.OFFSET_COMMIT):
        member = Member(side, new_group(side, rng), topic, "first")
        member.enter(9, 5, 0, 1)
        good = [commit_topic(side, version, topic, (0, 5, ""))]
        for note, who in {
            "its own": (member.id, member.generation),
            "a stale generation": (member.id, member.generation - 1),
            "a later generation": (member.id, member.generation + 1),
            "an unknown member": ("nobody", member.generation),
            "no member": ("", -1),
            "only a member": (member.id, -1),
        }.items():
            commit(side, version, member.group, good, note, who)
        member.leave()
        commit(side, version, member.group, good, "gone", (member.id, member.generation))
        commit(side, version, member.group, good, "by hand, after it has gone")
        fetch(side, 9, None, "all of it", member.group)
        member.close()


def fetches(side: Side, rng: Random) -> None:
    topic = side.create(f"fetches-{rng.getrandbits(32):08x}", 3)
    other = side.create(f"other-{rng.getrandbits(32):08x}")
    first, second = new_group(side, rng), new_group(side, rng)
    missing = new_group(side, rng, "missing")
    commit(side, 8, first, [commit_topic(side, 8, topic, (0, 5, "a note"), (2, 7, ""))], "first")
    commit(
        side, 8, second, [commit_topic(side, 8, topic, (1, 6, "")), commit_topic(side, 8, other, (0, 1, ""))], "second"
    )
    for version in versions(ApiKey.OFFSET_FETCH):
        fetch(side, version, {topic: [0, 1, 2]}, "some without an offset", first)
        fetch(side, version, {topic: [0, 9, -1], other: [0]}, "no such partition", first)
        fetch(side, version, {}, "nothing", first)
        fetch(side, version, {topic: [0]}, "a group that isn't there", missing)
        fetch(side, version, {topic: []}, "no partitions", first)
        if version >= 2:
            fetch(side, version, None, "everything", second)
            fetch(side, version, None, "everything of nobody", missing)
            fetch(side, version, {topic: [0]}, "no group", "")
        if version >= 7:
            fetch(side, version, None, "only what is stable", first, require_stable=True)
        if version >= 8:
            fetch(side, version, None, "of three groups", first, second, missing)
            fetch(side, version, {topic: [1]}, "one partition of two groups", first, second)
        if version >= 9:
            fetch(side, version, None, "a member of nobody", first, member_id="nobody", member_epoch=1)
            fetch(side, version, None, "an epoch without a member", first, member_id=None, member_epoch=4)
        if version < 10:
            fetch(side, version, {"no-such-topic": [0]}, "no such topic", first)


def deletions(side: Side, rng: Random) -> None:
    topic = side.create(f"deletions-{rng.getrandbits(32):08x}", 3)
    group = new_group(side, rng)
    commit(side, 8, group, [commit_topic(side, 8, topic, (0, 5, ""), (1, 6, ""), (2, 7, ""))], "three")

    def delete(group: str, note: str, *asked: tuple[str, list[int]]) -> None:
        topics = [{"name": name, "partitions": [{"partition_index": i} for i in parts]} for name, parts in asked]
        side.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": topics}, note)
        fetch(side, 8, None, f"after {note}", group)

    delete(group, "one", (topic, [1]))
    delete(group, "it again", (topic, [1]))
    delete(group, "no such partition", (topic, [7]))
    delete(group, "no such topic", ("no-such-topic", [0]))
    delete(group, "nothing")
    delete(new_group(side, rng, "missing"), "of a group that isn't there", (topic, [0]))
    delete("", "of no group", (topic, [0]))
    member = Member(side, group, topic, "member")
    member.enter(9, 5, 0)
    delete(group, "of a topic that is subscribed to", (topic, [0]))
    other = side.create(f"unsubscribed-{rng.getrandbits(32):08x}")
    delete(group, "of a topic that isn't", (other, [0]))
    member.leave()
    delete(group, "when all are gone", (topic, [0, 2]))
    member.close()


SCRIPTS = (commits, commits_of_members, fetches, deletions)
