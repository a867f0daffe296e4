"""The states of a shard: from which to which, and that what belongs to a state is there."""

import pytest

from tests.apis.offsets import GROUP, commit, committed, shard, sim_broker
from tests.apis.sim_broker import NOW_MS, SimBroker
from tests.coordinator.test_shard import code_of, hear_of_leader
from tidelog.coordinator import loading
from tidelog.coordinator.placement import CONSUMER_OFFSETS, partition_of
from tidelog.coordinator.shard_states import TRANSITIONS, ShardState, Slot
from tidelog.coordinator.shards import AGAIN_S_MAX
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode
from tidelog.wire.record import Record as Stored

INDEX = partition_of(GROUP, 4)


def state(port: SimBroker) -> ShardState:
    """Of the shard that has the group; what must hold between any two events does."""
    shards = port.services.groups.shards
    shards.check_invariants()
    return shards.slot(INDEX).state


def test_a_shard_decides_after_all_of_its_log_was_read_and_committed_and_at_no_other_moment() -> None:
    before = {one for one, others in TRANSITIONS.items() if ShardState.LEADING in others}
    assert before == {ShardState.READ}
    assert {one for one, others in TRANSITIONS.items() if ShardState.READ in others} == {ShardState.READING}


def test_leadership_may_end_in_every_state() -> None:
    assert all(ShardState.ABSENT in others for one, others in TRANSITIONS.items() if one is not ShardState.ABSENT)
    assert TRANSITIONS.keys() == set(ShardState)


def test_what_the_table_does_not_allow_is_a_mistake_of_ours() -> None:
    slot: Slot[object, object] = Slot(0)
    with pytest.raises(AssertionError, match="can't become"):
        slot.to(ShardState.LEADING)
    slot.to(ShardState.OPENING)
    slot.to(ShardState.ABSENT)
    slot.check_invariants()


def test_a_shard_is_read_waits_for_the_commit_and_leads_until_another_broker_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "CHUNK_BYTES", 300)
    port = sim_broker()
    for number in range(40):
        commit(port, {0: number})
    assert state(port) is ShardState.LEADING
    port = sim_broker(disk=port.kill())
    port.open((CONSUMER_OFFSETS, INDEX))
    port.hold_syncs()
    assert code_of(lambda: shard(port)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert state(port) is ShardState.READING
    port.settle()
    port.let_sync()
    assert committed(port) == {0: 39}
    assert state(port) is ShardState.LEADING
    hear_of_leader(port, INDEX, -1)
    assert state(port) is ShardState.ABSENT
    hear_of_leader(port, INDEX, 1)
    assert code_of(lambda: shard(port)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    port.settle()
    assert committed(port) == {0: 39}
    assert state(port) is ShardState.LEADING


def test_what_was_read_and_is_not_durable_is_decided_on_by_nobody() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    port.hold_syncs()
    port.append_own(CONSUMER_OFFSETS, bytes(build([Stored(-1, NOW_MS, b"\x03\xe7strange", None)])), INDEX)
    port.services.groups.shards.unload(INDEX)
    assert code_of(lambda: shard(port)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert state(port) is ShardState.READ
    port.let_sync()
    port.settle()
    assert state(port) is ShardState.LEADING


def test_a_damaged_record_breaks_a_shard_for_its_leader_epoch() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    port.append_own(CONSUMER_OFFSETS, bytes(build([Stored(-1, NOW_MS, b"\x00\x01\x00", b"\x00\x00")])), INDEX)
    port = sim_broker(disk=port.kill())
    port.open((CONSUMER_OFFSETS, INDEX))
    assert code_of(lambda: shard(port)) is ErrorCode.NOT_COORDINATOR
    assert state(port) is ShardState.BROKEN


def test_a_shard_that_can_not_be_read_rests_longer_each_time_and_forgets_that_once_it_leads() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    port = sim_broker(disk=port.kill())
    port.open((CONSUMER_OFFSETS, INDEX))
    port.disk.bad[f"/data/{CONSUMER_OFFSETS}-{INDEX}/00000000000000000000.log"] = range(1000)
    assert code_of(lambda: shard(port)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert state(port) is ShardState.RESTING
    slot = port.services.groups.shards.slot(INDEX)
    first_s = slot.rest_s
    port.pass_time(first_s * 1.5)
    assert state(port) is ShardState.RESTING
    assert slot.rest_s == 2 * first_s
    port.disk.bad.clear()
    port.pass_time(2 * AGAIN_S_MAX)
    assert state(port) is ShardState.LEADING


def test_a_stop_leaves_no_shard_behind() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    port.wait(port.broker.stop())
    assert state(port) is ShardState.ABSENT
