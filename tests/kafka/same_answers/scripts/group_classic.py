"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, in every version, good and bad."""

from random import Random
from typing import Any

from tests.group_requests import subscription
from tests.kafka.same_answers.scripts.group_members import Member, new_group, other_protocol
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey


def describe(side: Side, *groups: str, note: str = "") -> None:
    side.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": list(groups)}, note)


def a_life(side: Side, rng: Random) -> None:
    """One member joins, syncs, lives and leaves, in every version of each request."""
    topic = side.create(f"lives-{rng.getrandbits(32):08x}", 2)
    for turn in range(len(versions(ApiKey.JOIN_GROUP))):
        join, sync, beat, leave = (
            min(turn, versions(key)[-1])
            for key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP)
        )
        member = Member(side, new_group(side, rng), topic, f"turn{turn}")
        member.join(join)
        describe(side, member.group, note="joined")
        member.heartbeat(beat, "before it synced")
        member.sync(sync, {member.id: (0, 1)})
        member.sync(sync, None, "once more")
        member.heartbeat(beat)
        describe(side, member.group, note="stable")
        member.join(join, "once more")
        member.sync(sync, {member.id: (0,), "nobody": (1,)}, "with a part for nobody")
        member.leave(leave)
        member.leave(leave, "once more")
        member.heartbeat(beat, "gone")
        describe(side, member.group, note="empty")
        member.close()


def bad_joins(side: Side, rng: Random) -> None:
    topic = side.create(f"bad-joins-{rng.getrandbits(32):08x}")
    for version in versions(ApiKey.JOIN_GROUP):
        group = new_group(side, rng)
        cases: dict[str, dict[str, Any]] = {
            "no group": {"group_id": ""},
            "a member of nobody": {"member_id": "nobody"},
            "a session too short": {"session_timeout_ms": 1},
            "a session too long": {"session_timeout_ms": 10**9},
            "no protocols": {"protocols": []},
            "no protocol type": {"protocol_type": ""},
            "a session of 0": {"session_timeout_ms": 0},
        }
        if version >= 5:
            cases |= {
                "an instance and a member of nobody": {"member_id": "nobody", "group_instance_id": "one"},
                "an instance without a name": {"group_instance_id": ""},
                "an instance of a bad name": {"group_instance_id": "a/b"},
                "an instance called ..": {"group_instance_id": ".."},
                "an instance of a long name": {"group_instance_id": "x" * 250},
            }
        for place, (note, fields) in enumerate(cases.items()):
            stranger = Member(side, f"{group}-{place}", topic, "stranger")
            stranger.ask(ApiKey.JOIN_GROUP, version, stranger.join_fields(version, **fields), note)
            stranger.close()
        first = Member(side, group, topic, "first")
        first.enter(version, 5, 0)
        for note, fields in {
            "another protocol type": {"protocol_type": "connect"},
            "no common protocol": {"protocols": other_protocol(topic)},
            "no protocol type": {"protocol_type": ""},
            "no protocols": {"protocols": []},
            "another member": {"member_id": "nobody"},
        }.items():
            second = Member(side, group, topic, "second")
            second.ask(
                ApiKey.JOIN_GROUP, version, second.join_fields(version, **fields), f"{note}, to one who is there"
            )
            second.close()
        first.heartbeat(4, "undisturbed")
        first.leave()
        first.close()


def bad_syncs_and_heartbeats(side: Side, rng: Random) -> None:
    topic = side.create(f"bad-syncs-{rng.getrandbits(32):08x}")
    member = Member(side, new_group(side, rng), topic, "member")
    member.enter(9, 5, 0)
    for version in versions(ApiKey.SYNC_GROUP):
        for note, fields in {
            "no group": {"group_id": ""},
            "a group that isn't there": {"group_id": "missing"},
            "a member of nobody": {"member_id": "nobody"},
            "a stale generation": {"generation_id": member.generation - 1},
            "a later generation": {"generation_id": member.generation + 5},
            **({"an instance of nobody": {"group_instance_id": "one"}} if version >= 3 else {}),
            **({"another protocol": {"protocol_name": "roundrobin"}} if version >= 5 else {}),
            **({"another protocol type": {"protocol_type": "connect"}} if version >= 5 else {}),
            **({"no protocol": {"protocol_name": None, "protocol_type": None}} if version >= 5 else {}),
        }.items():
            member.sync(version, None, note, **fields)
    for version in versions(ApiKey.HEARTBEAT):
        for note, fields in {
            "no group": {"group_id": ""},
            "a group that isn't there": {"group_id": "missing"},
            "a member of nobody": {"member_id": "nobody"},
            "a stale generation": {"generation_id": member.generation - 1},
            "a later generation": {"generation_id": member.generation + 5},
            "no member": {"member_id": ""},
            **({"an instance of nobody": {"group_instance_id": "one"}} if version >= 3 else {}),
        }.items():
            member.heartbeat(version, note, **fields)
    for version in versions(ApiKey.LEAVE_GROUP):
        nobody: dict[str, Any] = {"member_id": "nobody"}
        if version >= 3:
            nobody = {"members": [{"member_id": "nobody"}, {"member_id": "", "group_instance_id": "one"}]}
        member.leave(version, "nobody", **nobody)
        member.leave(version, "no group", group_id="")
        member.leave(version, "a group that isn't there", group_id="missing")
        if version >= 3:
            member.leave(version, "no members", members=[])
    member.heartbeat(4, "still there")
    member.leave()
    member.close()


def two_members(side: Side, rng: Random) -> None:
    """A second one joins: the first is told to join again; then it leaves, and the other one too."""
    topic = side.create(f"two-{rng.getrandbits(32):08x}", 4)
    for version in versions(ApiKey.JOIN_GROUP):
        group = new_group(side, rng)
        first, second = Member(side, group, topic, "first"), Member(side, group, topic, "second")
        first.enter(version, 5, 0, 1, 2, 3)
        second.send_join(version)
        while (
            first.connection.ask(
                ApiKey.HEARTBEAT, 0, {"group_id": group, "generation_id": first.generation, "member_id": first.id}
            ).error_code
            == 0
        ):
            pass
        first.heartbeat(4, "is told to join again")
        describe(side, group, note="while they join")
        first.send_join(version)
        first.answer()
        second.answer()
        first.heartbeat(4, "before the leader has synced")
        second.send(ApiKey.SYNC_GROUP, 5, second.sync_fields(5), "waits")
        first.sync(5, {first.id: (0, 1), second.id: (2, 3)})
        second.answer()
        describe(side, group, note="shared")
        second.heartbeat(4)
        first.leave()
        second.heartbeat(4, "the other one left")
        second.join(version)
        second.sync(5, {second.id: (0, 1, 2, 3)})
        describe(side, group, note="alone")
        second.leave()
        first.close()
        second.close()


def static_members(side: Side, rng: Random) -> None:
    topic = side.create(f"static-{rng.getrandbits(32):08x}", 2)
    for version in versions(ApiKey.JOIN_GROUP)[5:]:
        group = new_group(side, rng)
        before = Member(side, group, topic, "before", instance="one")
        before.enter(version, 5, 0, 1)
        after = Member(side, group, topic, "after", instance="one")
        after.join(version, "in its place")
        describe(side, group, note="replaced")
        after.sync(5, {after.id: (0, 1)} if after.generation != before.generation else None)
        before.heartbeat(4, "is fenced")
        before.sync(5, None, "is fenced")
        before.ask(ApiKey.JOIN_GROUP, version, before.join_fields(version), "is fenced")
        before.leave(5, "is fenced")
        after.heartbeat(4)
        after.heartbeat(4, "without its instance", group_instance_id=None)
        after.join(
            version, "with other topics", protocols=[{"name": "range", "metadata": subscription(topic, "other")}]
        )
        after.sync(5, {after.id: (1,)})
        describe(side, group, note="with other topics")
        after.leave(5, "by its instance", members=[{"member_id": "", "group_instance_id": "one"}])
        describe(side, group, note="empty")
        before.close()
        after.close()


SCRIPTS = (a_life, bad_joins, bad_syncs_and_heartbeats, two_members, static_members)
