"""OffsetCommit: progress is durable when the answer leaves, and nobody commits for a group that it isn't part of."""

from typing import Any

import pytest

from tests.apis.groups import harbour_wait, stable
from tests.apis.offsets import GROUP, TOPIC, batches, commit, commit_fields, committed, fetch, find, shard, sim_broker
from tidelog.wire.batch import iterate
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import RANGES, ApiKey
from tidelog.wire.uuids import ZERO_UUID

VERSIONS = range(RANGES[ApiKey.OFFSET_COMMIT].min, RANGES[ApiKey.OFFSET_COMMIT].max + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_is_found_in_every_version(version: int) -> None:
    port = sim_broker()
    topic_id = port.services.metadata.image.topics[TOPIC].id
    named = {"topic_id": topic_id} if version >= 10 else {"name": TOPIC}
    answer = port.ask(ApiKey.OFFSET_COMMIT, version, commit_fields(GROUP, {0: 5, 2: 7}, named=named))
    topic = answer.topics[0]
    assert (topic.name, topic.topic_id) == ("", topic_id) if version >= 10 else (TOPIC, ZERO_UUID)
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, 0), (2, 0)]
    assert committed(port) == {0: 5, 2: 7}


def test_the_answer_waits_for_the_disk_and_readers_see_nothing_before() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    port.hold_syncs()
    asked = port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, {0: 2}))
    port.settle()
    assert not asked.done
    assert committed(port) == {0: 1}
    port.let_sync()
    assert asked.response.topics[0].partitions[0].error_code == 0
    assert committed(port) == {0: 2}


def test_many_commits_share_one_sync() -> None:
    port = sim_broker({"offsets.topic.num.partitions": "1"})
    groups = [f"{GROUP}-{number}" for number in range(40)]
    for group in groups:
        commit(port, {0: 0}, group)
    port.hold_syncs()
    asked = [port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(group, {0: 9})) for group in groups]
    port.settle()
    assert port.loop.held_work is not None
    assert len(port.loop.held_work) == 1
    port.let_sync()
    port.settle()
    assert all(one.done for one in asked)
    assert all(committed(port, group) == {0: 9} for group in groups)


def test_topics_and_partitions_that_are_not_there_are_told_one_by_one() -> None:
    port = sim_broker()
    fields = commit_fields(GROUP, {0: 1, 3: 1, -1: 1})
    fields["topics"] += commit_fields(GROUP, {0: 1}, "nowhere")["topics"]
    known, unknown = port.ask(ApiKey.OFFSET_COMMIT, 8, fields).topics
    assert [one.error_code for one in known.partitions] == [0, 3, 3]
    assert [one.error_code for one in unknown.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert committed(port) == {0: 1}
    assert commit(port, {0: 1}, version=10, named={"topic_id": b"x" * 16}) == {ErrorCode.UNKNOWN_TOPIC_ID}


def test_what_is_committed_with_an_offset_has_a_bound() -> None:
    port = sim_broker({"offset.metadata.max.bytes": "4"})
    assert commit(port, {0: 1}, metadata="four") == {0}
    assert commit(port, {0: 2}, metadata="fives") == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert commit(port, {0: 3}, metadata="🌊🌊🌊") == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert committed(port) == {0: 1}


def test_a_null_text_is_an_empty_one() -> None:
    port = sim_broker()
    commit(port, {0: 1}, metadata=None)
    fields = {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    assert port.ask(ApiKey.OFFSET_FETCH, 5, fields).topics[0].partitions[0].metadata == ""


def test_who_is_no_member_may_commit_for_itself_only() -> None:
    port = sim_broker()
    nobody = {"generation_id_or_member_epoch": 3, "member_id": "someone"}
    assert commit(port, {0: 1}, **nobody) == {ErrorCode.ILLEGAL_GENERATION}
    assert commit(port, {0: 1}, version=9, **nobody) == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert commit(port, {0: 1}, member_id="someone") == {0}, "whoever names no generation commits for itself"
    assert commit(port, {0: 2}, **nobody) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert committed(port) == {0: 1}


def test_the_empty_group_is_a_group_as_for_old_clients() -> None:
    port = sim_broker()
    find(port, "")
    assert commit(port, {1: 4}, "") == {0}
    assert committed(port, "") == {1: 4}


def test_without_the_topic_of_offsets_there_is_no_coordinator() -> None:
    from tests.apis.sim_broker import SimBroker

    port = SimBroker()
    port.make_topic(TOPIC)
    assert commit(port, {0: 1}) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    answer = port.ask(ApiKey.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": None})
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_commit_too_large_for_the_topic_changes_nothing() -> None:
    port = sim_broker(partitions=3)
    commit(port, {0: 1})
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets"}
    config = {"name": "max.message.bytes", "config_operation": 0, "value": "300"}
    port.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [{**resource, "configs": [config]}]})
    before = shard(port).machine.newest
    assert commit(port, {0: 2, 1: 2, 2: 2}, metadata="x" * 200) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert shard(port).machine.newest is before
    assert commit(port, {0: 3}) == {0}
    assert committed(port) == {0: 3}


def many_fields(count: int, partitions: int, **more: Any) -> dict[str, Any]:
    """Offsets 0, 1, 2... for all partitions in turn."""
    named = [{"partition_index": number % partitions, "committed_offset": number} for number in range(count)]
    return {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": named}], **more}


def codes(answer: Any) -> list[int]:
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def test_a_commit_of_very_many_offsets_is_several_batches_that_all_count() -> None:
    port = sim_broker(partitions=100)
    before = batches(port)
    answer = port.ask(ApiKey.OFFSET_COMMIT, 8, many_fields(10_000, 100))
    assert codes(answer) == [0] * 10_000
    assert batches(port) == before + 3
    last = {partition: 9_900 + partition for partition in range(100)}
    assert committed(port) == last
    port = sim_broker(disk=port.kill())
    port.ask(ApiKey.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": None})  # has it loaded
    port.pass_time(1)
    assert committed(port) == last


def test_a_commit_that_no_batch_holds_is_as_many_as_it_needs() -> None:
    port = sim_broker({"message.max.bytes": "20000"}, partitions=1000)
    fields = many_fields(1000, 1000)
    assert codes(port.ask(ApiKey.OFFSET_COMMIT, 8, fields)) == [0] * 1000
    partition = shard(port).partition
    piece = partition.read(partition.log.log_start, 1 << 24, committed=False, at_least_one=True)
    assert piece is not None
    sizes = [header.size for header in iterate(bytes(piece.view()))]
    assert max(sizes) <= 20_000
    assert len(sizes) < 10
    assert committed(port) == {number: number for number in range(1000)}


def test_up_to_four_thousand_offsets_are_one_batch_which_counts_or_does_not() -> None:
    port = sim_broker(partitions=100)
    assert codes(port.ask(ApiKey.OFFSET_COMMIT, 8, many_fields(4000, 100))) == [0] * 4000
    assert batches(port) == 1
    assert committed(port) == {partition: 3900 + partition for partition in range(100)}


def test_who_is_fenced_in_the_middle_of_a_commit_has_committed_what_was_told() -> None:
    port = sim_broker({"group.initial.rebalance.delay.ms": "0"}, partitions=100)
    (member,) = stable(port, group=GROUP)
    port.hold_syncs()
    asked = port.send(
        ApiKey.OFFSET_COMMIT, 8, many_fields(10_000, 100, generation_id_or_member_epoch=1, member_id=member)
    )
    port.pass_time(5)
    leaving = port.send(ApiKey.LEAVE_GROUP, 5, {"group_id": GROUP, "members": [{"member_id": member}]})
    port.let_sync()
    assert codes(harbour_wait(port, asked)) == [0] * 4000 + [ErrorCode.UNKNOWN_MEMBER_ID] * 6000
    assert harbour_wait(port, leaving).error_code == 0
    assert committed(port) == {partition: 3900 + partition for partition in range(100)}


def test_what_is_too_long_among_very_many_is_refused_alone() -> None:
    port = sim_broker(partitions=100)
    fields = many_fields(1000, 100)
    fields["topics"][0]["partitions"][7]["committed_metadata"] = "x" * 5000
    answered = codes(port.ask(ApiKey.OFFSET_COMMIT, 8, fields))
    assert answered.pop(7) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert answered == [0] * 999


def test_offsets_survive_a_crash_and_a_stop() -> None:
    port = sim_broker()
    groups = [f"{GROUP}-{number}" for number in range(30)]
    for number, group in enumerate(groups):
        commit(port, {0: number, 1: number + 1}, group)
        commit(port, {0: number + 2}, group)
    port = sim_broker(disk=port.kill())
    for number, group in enumerate(groups):
        assert fetch(port, group) == {(TOPIC, 0): number + 2, (TOPIC, 1): number + 1}
    port.wait(port.broker.stop())
    port = sim_broker(disk=port.kill())
    assert fetch(port, groups[7]) == {(TOPIC, 0): 9, (TOPIC, 1): 8}


def test_what_was_not_acknowledged_may_be_lost_but_what_was_is_not() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    port.hold_syncs()
    port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, {0: 2}))
    port.settle()
    port = sim_broker(disk=port.kill())
    assert committed(port)[0] in (1, 2)


def test_a_commit_that_the_disk_keeps_waiting_is_told_to_come_again() -> None:
    port = sim_broker({"offsets.commit.timeout.ms": "2000"})
    commit(port, {0: 1})
    port.hold_syncs()
    asked = port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, {0: 2}))
    port.pass_time(1.9)
    assert not asked.done
    port.pass_time(0.2)
    assert asked.response.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(port) == {0: 1}
    port.let_sync()
    assert committed(port) == {0: 2}, "it may be done all the same"
    assert commit(port, {0: 3}) == {0}


def test_a_disk_that_fails_takes_the_coordinator_away() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    port.hold_syncs()
    asked = port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, {0: 2}))
    port.settle()
    shard(port).partition.log.go_offline("the disk is gone")
    port.settle()
    assert asked.response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert commit(port, {0: 3}) == {ErrorCode.NOT_COORDINATOR}


def test_offsets_are_compressed_where_that_is_set() -> None:
    port = sim_broker({"offsets.topic.compression.codec": "4"})
    commit(port, dict.fromkeys(range(3), 1), metadata="a text that is long enough to be worth it" * 4)
    partition = shard(port).partition
    piece = partition.read(0, 4096, committed=False, at_least_one=True)
    assert piece is not None
    assert piece.view()[22] & 7 == 4
    port = sim_broker(disk=port.kill())
    assert committed(port) == {0: 1, 1: 1, 2: 1}
