"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup through the broker: versions, refusals, records, restarts."""

import re
from typing import Any

import pytest

from tests.apis.groups import (
    beat,
    become_member,
    harbour_wait,
    join,
    join_fields,
    leave,
    open_harbour,
    send_join,
    send_sync,
    stable,
    sync,
    sync_fields,
)
from tests.apis.sim_broker import SimBroker
from tests.batches import batches
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.records.coordinator import OFFSETS_TOPIC, RecordTypes
from tidelog.wire.records.groups import GroupMetadataKey

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.fixture
def sim_broker() -> SimBroker:
    return open_harbour()


def shown(sim_broker: SimBroker, group: str = "g") -> Any:
    return sim_broker.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group]}).groups[0]


def test_a_group_of_three_settles_and_is_shown(sim_broker: SimBroker) -> None:
    leader, *_ = ids = stable(sim_broker, 3)
    assert re.fullmatch(f"tester-{UUID}", leader)
    assert all(beat(sim_broker, member_id, 1) == 0 for member_id in ids)
    group = shown(sim_broker)
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert {one.member_id: one.member_assignment for one in group.members} == {one: one.encode() for one in ids}
    assert {(one.client_id, one.client_host, one.member_metadata) for one in group.members} == {
        ("tester", "/127.0.0.1", b"m")
    }


def test_static_members_ids_begin_with_their_instance_id(sim_broker: SimBroker) -> None:
    answer = join(sim_broker, instance="pier-1")
    assert re.fullmatch(f"pier-1-{UUID}", answer.member_id)


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_joining(sim_broker: SimBroker, version: int) -> None:
    fields = join_fields()
    if version < 5:
        del fields["group_instance_id"]
    if version < 1:
        del fields["rebalance_timeout_ms"]
    answer = sim_broker.ask(ApiKey.JOIN_GROUP, version, fields)
    if version >= 4:
        assert (answer.error_code, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert answer.protocol_name == (None if version >= 7 else "")
        answer = sim_broker.ask(ApiKey.JOIN_GROUP, version, {**fields, "member_id": answer.member_id})
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id == answer.members[0].member_id
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    if version == 0:
        group = sim_broker.services.groups.shard_of("g").live.classic["g"]
        assert group.rebalance_timeout_ms == 10_000, "the session's, since it has none of its own"


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_syncing(sim_broker: SimBroker, version: int) -> None:
    member_id = join(sim_broker, version=3).member_id
    fields = sync_fields(member_id, 1, {member_id: b"part"})
    if version < 5:
        del fields["protocol_type"], fields["protocol_name"]
    answer = sim_broker.ask(ApiKey.SYNC_GROUP, version, fields)
    assert (answer.error_code, answer.assignment) == (0, b"part")
    assert answer.protocol_type == ("consumer" if version == 5 else None)


def test_from_version_5_on_syncing_names_the_protocol(sim_broker: SimBroker) -> None:
    (member_id,) = stable(sim_broker)
    answer = sync(sim_broker, member_id, 1, protocol_name=None)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeats(sim_broker: SimBroker, version: int) -> None:
    (member_id,) = stable(sim_broker)
    fields = {"group_id": "g", "generation_id": 1, "member_id": member_id}
    assert sim_broker.ask(ApiKey.HEARTBEAT, version, fields).error_code == 0
    fields["generation_id"] = 7
    assert sim_broker.ask(ApiKey.HEARTBEAT, version, fields).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(3))
def test_old_versions_of_leaving_have_one_member_and_one_error(sim_broker: SimBroker, version: int) -> None:
    (member_id,) = stable(sim_broker)
    fields = {"group_id": "g", "member_id": "stranger"}
    assert sim_broker.ask(ApiKey.LEAVE_GROUP, version, fields).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sim_broker.ask(ApiKey.LEAVE_GROUP, version, {**fields, "member_id": member_id}).error_code == 0
    assert shown(sim_broker).group_state == "Empty"


@pytest.mark.parametrize("version", range(3, 6))
def test_new_versions_of_leaving_have_a_result_for_each(sim_broker: SimBroker, version: int) -> None:
    (member_id,) = stable(sim_broker)
    answer = leave(sim_broker, {"member_id": member_id}, {"member_id": "stranger"}, version=version)
    assert answer.error_code == 0
    assert [one.error_code for one in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_group_that_is_not_there_has_no_members(sim_broker: SimBroker) -> None:
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    answer = join(sim_broker, "somebody", group="nowhere")
    assert (answer.error_code, answer.member_id) == (unknown, "somebody")
    assert sync(sim_broker, "somebody", 1, group="nowhere").error_code == unknown
    assert beat(sim_broker, "somebody", 1, group="nowhere") == unknown
    left = leave(sim_broker, {"member_id": "somebody", "group_instance_id": "i"}, group="nowhere")
    assert (left.error_code, [(one.member_id, one.error_code) for one in left.members]) == (0, [("somebody", unknown)])
    assert sim_broker.ask(ApiKey.LIST_GROUPS, 5, {}).groups == []


def test_a_group_must_have_an_id(sim_broker: SimBroker) -> None:
    invalid = ErrorCode.INVALID_GROUP_ID
    assert join(sim_broker, "m", group="").error_code == invalid
    assert sync(sim_broker, "m", 1, group="").error_code == invalid
    assert beat(sim_broker, "m", 1, group="") == invalid
    assert leave(sim_broker, {"member_id": "m"}, group="").error_code == invalid


@pytest.mark.parametrize(
    ("timeout_ms", "is_allowed"), [(5999, False), (6000, True), (1_800_000, True), (1_800_001, False)]
)
def test_sessions_are_as_long_as_the_broker_allows(sim_broker: SimBroker, timeout_ms: int, is_allowed: bool) -> None:
    answer = join(sim_broker, session_timeout_ms=timeout_ms)
    expected = ErrorCode.MEMBER_ID_REQUIRED if is_allowed else ErrorCode.INVALID_SESSION_TIMEOUT
    assert answer.error_code == expected


def test_without_the_offsets_topic_there_is_no_coordinator_yet() -> None:
    sim_broker = SimBroker()
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert join(sim_broker).error_code == missing
    assert sync(sim_broker, "m", 1).error_code == missing
    assert beat(sim_broker, "m", 1) == missing
    assert leave(sim_broker, {"member_id": "m"}).error_code == missing


def test_a_protocol_that_is_named_twice_counts_once(sim_broker: SimBroker) -> None:
    twice = [{"name": "range", "metadata": b"first"}, {"name": "range", "metadata": b"second"}]
    answer = join(sim_broker, version=3, protocols=twice)
    assert [one.metadata for one in answer.members] == [b"first"]
    left = leave(sim_broker, {"member_id": answer.member_id})
    assert left.members[0].error_code == 0
    assert shown(sim_broker).group_state == "Empty"


def test_a_client_without_a_name_is_a_member_all_the_same(sim_broker: SimBroker) -> None:
    asked = sim_broker.send(ApiKey.JOIN_GROUP, 9, join_fields(), client_id=None)
    assert re.fullmatch(f"-{UUID}", harbour_wait(sim_broker, asked).member_id)


def test_group_max_size_holds() -> None:
    sim_broker = open_harbour({"group.max.size": "2"})
    stable(sim_broker, 2)
    assert join(sim_broker).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_initial_delay_is_the_setting() -> None:
    sim_broker = open_harbour({"group.initial.rebalance.delay.ms": "2500"})
    _, asked = become_member(sim_broker)
    sim_broker.pass_time(2.4)
    assert not asked.done
    sim_broker.pass_time(0.2)
    assert asked.response.generation_id == 1


def test_silence_ends_a_session_and_the_others_are_told(sim_broker: SimBroker) -> None:
    one, two = stable(sim_broker, 2)
    for _ in range(4):
        sim_broker.pass_time(3.0)
        code = beat(sim_broker, one, 1)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
    assert beat(sim_broker, two, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    again = join(sim_broker, one)
    assert (again.generation_id, len(again.members)) == (2, 1)


def planned(sim_broker: SimBroker) -> int:
    """The timers that the broker has."""
    sim_broker.settle()
    return sim_broker.timeline.planned(sim_broker.loop)


def test_a_group_has_no_more_timers_however_many_heartbeats_come() -> None:
    sim_broker = open_harbour({"offsets.topic.num.partitions": "1"})
    before = planned(sim_broker)
    ids = stable(sim_broker, 20)
    timers = planned(sim_broker)
    assert timers <= before + 3, "the group's, and two of the shard's own"
    for _ in range(30):
        for member_id in ids:
            assert beat(sim_broker, member_id, 1) == 0
        sim_broker.pass_time(1.0)
        assert planned(sim_broker) <= timers


def records(sim_broker: SimBroker) -> list[tuple[int, Any]]:
    """The group records of the offsets topic: the version of the value, and the value."""
    index = sim_broker.services.groups.shard_of("g").index
    part = {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    fields = {"max_bytes": 1 << 20, "min_bytes": 1, "topics": [{"topic": "__consumer_offsets", "partitions": [part]}]}
    data = sim_broker.ask(ApiKey.FETCH, 11, fields).responses[0].partitions[0].records
    types = RecordTypes(OFFSETS_TOPIC)
    found: list[tuple[int, Any]] = []
    for _, key, value in (record for batch in batches(bytes(data)) for record in batch.values()):
        decoded = types.decode(key or b"", value)
        if decoded is not None and isinstance(decoded[0], GroupMetadataKey):
            found.append((-1 if value is None else int.from_bytes(value[:2], "big"), decoded[1]))
    return found


def test_the_log_tells_the_groups_life_as_kafka_writes_it(sim_broker: SimBroker) -> None:
    member_id = stable(sim_broker)[0]
    leave(sim_broker, {"member_id": member_id})
    told = [
        (version, value.protocol_type, value.generation, value.protocol, value.leader, len(value.members))
        for version, value in records(sim_broker)
    ]
    assert told == [
        (3, "", 0, None, None, 0),
        (3, "consumer", 1, "range", member_id, 1),
        (3, "consumer", 2, None, None, 0),
    ]


def test_an_assignment_waits_for_its_record(sim_broker: SimBroker) -> None:
    member_id, asked = become_member(sim_broker)
    assert harbour_wait(sim_broker, asked).generation_id == 1
    sim_broker.hold_syncs()
    syncing = send_sync(sim_broker, member_id, 1, {member_id: b"part"})
    sim_broker.pass_time(1.0)
    assert not syncing.done
    sim_broker.let_sync()
    assert harbour_wait(sim_broker, syncing).assignment == b"part"


def test_an_assignment_too_large_for_the_topic_sends_everyone_back() -> None:
    sim_broker = open_harbour({"message.max.bytes": "2000"})
    member_id, asked = become_member(sim_broker)
    assert harbour_wait(sim_broker, asked).generation_id == 1
    answer = sync(sim_broker, member_id, 1, {member_id: bytes(3000)})
    assert (answer.error_code, answer.assignment) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
    assert beat(sim_broker, member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again = join(sim_broker, member_id)
    assert again.generation_id == 2
    assert sync(sim_broker, member_id, 2, {member_id: b"small"}).assignment == b"small"


def test_a_broker_that_was_killed_comes_back_with_its_groups(sim_broker: SimBroker) -> None:
    one, two = stable(sim_broker, 2)
    assert join(sim_broker, group="empty").error_code == ErrorCode.MEMBER_ID_REQUIRED
    again = open_harbour(disk=sim_broker.kill())
    assert shown(again).group_state == "Stable"
    again.pass_time(8.0)
    assert beat(again, one, 1) == beat(again, two, 1) == 0, "a whole session from the start"
    assert sync(again, two, 1).assignment == two.encode()
    assert {row.group_id: row.group_state for row in again.ask(ApiKey.LIST_GROUPS, 5, {}).groups} == {
        "g": "Stable",
        "empty": "Empty",
    }
    _, asked = become_member(again)
    assert beat(again, one, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again_joined = [send_join(again, member_id) for member_id in (one, two)]
    assert harbour_wait(again, asked).generation_id == 2
    assert [answer.response.generation_id for answer in again_joined] == [2, 2]


def test_a_group_loaded_above_its_limit_shrinks(sim_broker: SimBroker) -> None:
    ids = stable(sim_broker, 3)
    again = open_harbour({"group.max.size": "2"}, disk=sim_broker.kill())
    assert beat(again, ids[0], 1) == ErrorCode.REBALANCE_IN_PROGRESS
    joining = [send_join(again, member_id) for member_id in ids]
    answers = [harbour_wait(again, asked) for asked in joining]
    assert [answer.error_code for answer in answers] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_broker_that_stops_tells_those_who_wait(sim_broker: SimBroker) -> None:
    stable(sim_broker)
    _, asked = become_member(sim_broker)
    sim_broker.wait(sim_broker.broker.stop())
    assert asked.response.error_code == ErrorCode.NOT_COORDINATOR


def test_a_deleted_group_begins_anew(sim_broker: SimBroker) -> None:
    (member_id,) = stable(sim_broker)
    refused = sim_broker.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]}).results[0]
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    leave(sim_broker, {"member_id": member_id})
    assert sim_broker.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]}).results[0].error_code == 0
    assert beat(sim_broker, member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    stable(sim_broker)
    assert [value is None or value.generation for _, value in records(sim_broker)] == [0, 1, 2, True, 0, 1]


def test_a_group_that_only_committed_offsets_needs_no_record_of_its_own(sim_broker: SimBroker) -> None:
    sim_broker.make_topic("tides")
    topic = {"name": "tides", "partitions": [{"partition_index": 0, "committed_offset": 5}]}
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": [topic]}
    answer = sim_broker.ask(ApiKey.OFFSET_COMMIT, 8, fields)
    assert answer.topics[0].partitions[0].error_code == 0
    assert join(sim_broker, "m").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stable(sim_broker)
    assert [value.generation for _, value in records(sim_broker)] == [1]


def test_commits_of_members_and_of_others(sim_broker: SimBroker) -> None:
    sim_broker.make_topic("tides")
    (member_id,) = stable(sim_broker)
    topic = {"name": "tides", "partitions": [{"partition_index": 0, "committed_offset": 5}]}

    def commit(member: str, generation: int) -> int:
        fields = {"group_id": "g", "generation_id_or_member_epoch": generation, "member_id": member, "topics": [topic]}
        return sim_broker.ask(ApiKey.OFFSET_COMMIT, 8, fields).topics[0].partitions[0].error_code

    assert commit(member_id, 1) == 0
    assert commit(member_id, 0) == ErrorCode.ILLEGAL_GENERATION
    assert commit("stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
