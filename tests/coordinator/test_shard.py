"""Shards: state on a partition of an internal topic, loaded and unloaded as leadership comes and goes."""

from collections.abc import Callable

import pytest

from tests.apis.offsets import GROUP, TOPIC, commit, commit_fields, committed, find, shard, sim_broker
from tests.apis.sim_broker import NOW_MS, SimBroker
from tidelog.coordinator import loading
from tidelog.coordinator.entry import Entry
from tidelog.coordinator.shards import AGAIN_S_MAX
from tidelog.env.promise import Promise
from tidelog.env.slices import whole
from tidelog.machine import machine
from tidelog.metadata.apply import fold
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.keys import ApiKey
from tidelog.wire.record import Record as Stored
from tidelog.wire.records.groups import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.records.metadata import PartitionChangeRecord, RemoveTopicRecord


def offset(partition: int, value: int, group: str = GROUP) -> Entry:
    return Entry(OffsetCommitKey(group=group, topic=TOPIC, partition=partition), OffsetCommitValue(offset=value))


def code_of(ask: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        ask()
    return raised.value.code


def hear_of_leader(port: SimBroker, index: int, leader: int) -> None:
    """The broker hears that leadership of a partition of the offsets has moved."""
    image = port.services.metadata.image
    record = PartitionChangeRecord(partition_id=index, topic_id=image.topics["__consumer_offsets"].id, leader=leader)
    whole(port.services.metadata.publish(fold(image, [record], image.offset + 1, image.epoch, NOW_MS), [record]))


def test_a_decision_sees_what_was_appended_and_readers_what_is_committed() -> None:
    port = sim_broker()
    harness = shard(port)
    port.hold_syncs()
    first = harness.submit(lambda state, now_ms: ([offset(0, 1)], len(state.offsets)))
    second = harness.submit(lambda state, now_ms: ([offset(0, 2)], state.offsets[GROUP][TOPIC, 0].offset))
    third = harness.submit(lambda state, now_ms: ((), state.offsets[GROUP][TOPIC, 0].offset))
    port.settle()
    assert [one.done for one in (first, second, third)] == [False] * 3
    assert not harness.state.offsets
    harness.machine.check_invariants()
    port.let_sync()
    assert [one.result() for one in (first, second, third)] == [0, 1, 2]
    assert harness.state.offsets[GROUP][TOPIC, 0].offset == 2


def test_a_decision_that_raises_changes_nothing() -> None:
    harness = shard(sim_broker())
    before, end = harness.machine.newest, harness.partition.log.log_end

    def refuse(state: object, now_ms: int) -> tuple[list[Entry], None]:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    assert harness.submit(refuse).error is not None
    assert harness.machine.newest is before
    assert harness.partition.log.log_end == end


def test_each_full_disk_is_told_of_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    port = sim_broker()
    for number in range(1, 3):
        port.disk.capacity = 0
        for _ in range(3):
            assert commit(port, {0: number}) == {ErrorCode.NOT_COORDINATOR}
        port.disk.capacity = None
        assert commit(port, {0: number}) == {0}
        assert [caplog.text.count(words) for words in ("No space left", "there is room again")] == [number, number]


def test_a_full_disk_takes_the_replay_back() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    harness = shard(port)
    before = harness.machine.newest
    port.disk.capacity = 0
    failed = harness.submit(lambda state, now_ms: ([offset(0, 2)], None))
    assert isinstance(failed.error, KafkaError)
    assert failed.error.code is ErrorCode.NOT_COORDINATOR
    assert harness.machine.newest is before
    harness.machine.check_invariants()
    port.disk.capacity = None
    assert commit(port, {0: 3}) == {0}
    port = sim_broker(disk=port.kill())
    assert committed(port) == {0: 3}


def test_leadership_that_ends_fails_who_waits_and_stops_timers() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    harness = shard(port)
    rang: list[str] = []
    harness.schedule(5, lambda: rang.append("late"))
    unloaded: list[object] = []
    port.services.groups.shards.on_unload.append(unloaded.append)
    port.hold_syncs()
    waiting: Promise[None] = harness.submit(lambda state, now_ms: ([offset(0, 2)], None))
    port.settle()
    hear_of_leader(port, harness.index, -1)
    assert isinstance(waiting.error, KafkaError)
    assert waiting.error.code is ErrorCode.NOT_COORDINATOR
    assert unloaded == [harness]
    assert code_of(lambda: shard(port)) is ErrorCode.NOT_COORDINATOR
    assert harness.submit(lambda state, now_ms: ([offset(0, 3)], None)).error is not None
    port.pass_time(10)
    assert rang == []
    port.let_sync()
    hear_of_leader(port, harness.index, 1)
    assert shard(port) is not harness
    assert shard(port).epoch > harness.epoch
    assert committed(port) == {0: 2}, "it was written before, and is committed now"
    assert shard(port).state.offsets[GROUP][TOPIC, 0].record_offset == 1


def test_a_long_log_is_loaded_in_pieces_and_asking_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "CHUNK_BYTES", 300)
    port = sim_broker({"offsets.topic.num.partitions": "1"})
    for number in range(40):
        commit(port, {0: number, 1: number})
    port = sim_broker({"offsets.topic.num.partitions": "1"}, disk=port.kill())
    port.open(("__consumer_offsets", 0))
    assert code_of(lambda: shard(port)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert commit(port, {0: 9}) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert port.ask(ApiKey.LIST_GROUPS, 5, {}).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    port.settle()
    assert committed(port) == {0: 39, 1: 39}


def test_what_nobody_asks_for_is_loaded_all_the_same() -> None:
    port = sim_broker()
    groups = [f"{GROUP}-{number}" for number in range(12)]
    for group in groups:
        commit(port, {0: 1}, group)
    port = SimBroker({"offsets.topic.num.partitions": "4"}, disk=port.kill())
    assert not list(port.services.groups.shards.loaded())
    port.pass_time(1.5)
    loaded = list(port.services.groups.shards.loaded())
    assert len(loaded) == 4
    assert {group for one in loaded for group in one.state.offsets} == set(groups)


def test_a_shard_begins_when_what_it_read_is_durable() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    harness = shard(port)
    port.hold_syncs()
    harness.submit(lambda state, now_ms: ([offset(0, 2)], None))
    port.services.groups.shards.unload(harness.index)
    assert code_of(lambda: shard(port)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    port.settle()
    assert code_of(lambda: shard(port)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    port.let_sync()
    assert committed(port) == {0: 2}


def test_records_of_a_type_that_is_not_known_are_passed_over() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    strange = build([Stored(-1, NOW_MS, b"\x03\xe7strange", b"\x00\x00"), Stored(-1, NOW_MS, b"\x03\xe7strange", None)])
    index = shard(port).index
    port.append_own("__consumer_offsets", bytes(strange), index)
    port = sim_broker(disk=port.kill())
    commit(port, {1: 2})
    assert committed(port) == {0: 1, 1: 2}
    assert shard(port).state.offsets[GROUP][TOPIC, 1].record_offset == 3


def test_a_record_that_can_not_be_read_leaves_groups_without_a_coordinator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = sim_broker()
    commit(port, {0: 1})
    index = shard(port).index
    port.append_own("__consumer_offsets", bytes(build([Stored(-1, NOW_MS, b"\x00\x01\x00", b"\x00\x00")])), index)
    port = SimBroker({"offsets.topic.num.partitions": "4"}, disk=port.kill())
    port.open(("__consumer_offsets", index))
    assert code_of(lambda: shard(port)) is ErrorCode.NOT_COORDINATOR
    assert code_of(lambda: shard(port)) is ErrorCode.NOT_COORDINATOR
    assert "can't be loaded" in caplog.text


def test_a_log_that_the_disk_does_not_give_back_is_read_again_later(caplog: pytest.LogCaptureFixture) -> None:
    port = sim_broker()
    commit(port, {0: 1})
    index = shard(port).index
    port = SimBroker({"offsets.topic.num.partitions": "4"}, disk=port.kill())
    port.open(("__consumer_offsets", index))
    port.disk.bad[f"/data/__consumer_offsets-{index}/00000000000000000000.log"] = range(1000)
    assert code_of(lambda: shard(port)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert "can't be read" in caplog.text
    port.disk.bad.clear()
    port.pass_time(2 * AGAIN_S_MAX)  # the disk is asked again for a bad sector after ten seconds only
    assert committed(port) == {0: 1}


def test_a_topic_deleted_and_made_again_begins_empty() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    gone = RemoveTopicRecord(topic_id=port.services.metadata.image.topics["__consumer_offsets"].id)
    port.wait(port.services.controller.submit(lambda image, now_ms: ([gone], None)))  # no client may; a record can
    assert code_of(lambda: shard(port)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    find(port, GROUP)
    assert committed(port) == {}
    assert commit(port, {0: 5}) == {0}


def test_a_stop_ends_every_shard() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    harness = shard(port)
    port.wait(port.broker.stop())
    assert not harness.leads
    assert code_of(lambda: shard(port)) is ErrorCode.NOT_COORDINATOR


def test_more_changes_than_may_wait_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "WAITING_MAX", 3)
    port = sim_broker()
    port.hold_syncs()
    asked = [port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, {0: number})) for number in range(5)]
    port.settle()
    assert [one.done for one in asked] == [False, False, False, True, True]
    codes = {one.response.topics[0].partitions[0].error_code for one in asked[3:]}
    assert codes == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    port.let_sync()
    assert committed(port) == {0: 2}
