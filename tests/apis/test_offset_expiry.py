"""Offsets that are kept no longer, and groups that go with their last one."""

import pytest

from tests.apis.groups import join
from tests.apis.offsets import GROUP, TOPIC, batches, commit, committed, sim_broker
from tests.apis.sim_broker import SimBroker
from tests.apis.test_offset_fetch import end, in_transaction
from tidelog.coordinator.group import expiry, removal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SETTINGS = {"offsets.retention.minutes": "10", "offsets.retention.check.interval.ms": "60000"}
MINUTE = 60.0


def names(port: SimBroker) -> set[str]:
    return {one.group_id for one in port.ask(ApiKey.LIST_GROUPS, 5, {}).groups}


def test_offsets_of_a_group_without_members_expire_by_their_commit() -> None:
    port = sim_broker(SETTINGS)
    commit(port, {0: 1, 1: 1})
    port.pass_time(6 * MINUTE)
    commit(port, {1: 2})
    assert committed(port) == {0: 1, 1: 2}
    port.pass_time(5 * MINUTE)
    assert committed(port) == {1: 2}
    assert names(port) == {GROUP}
    port.pass_time(6 * MINUTE)
    assert committed(port) == {}
    assert names(port) == set()


def test_offsets_expire_after_a_restart_too() -> None:
    port = sim_broker(SETTINGS)
    commit(port, {0: 1})
    port.pass_time(9 * MINUTE)
    started_ms = port.timeline.now_ms()
    port = sim_broker(SETTINGS, disk=port.kill())
    port.pass_time((started_ms - port.timeline.now_ms()) / 1000)
    assert committed(port) == {0: 1}
    port.pass_time(3 * MINUTE)
    assert committed(port) == {}


def test_a_commit_may_say_itself_how_long_it_is_kept() -> None:
    port = sim_broker(SETTINGS)
    commit(port, {0: 1}, version=2, retention_time_ms=int(2 * MINUTE * 1000))
    commit(port, {1: 1}, version=4, retention_time_ms=int(20 * MINUTE * 1000))
    commit(port, {2: 1})
    port = sim_broker(SETTINGS, disk=port.kill())
    port.pass_time(4 * MINUTE)
    assert committed(port) == {1: 1, 2: 1}
    port.pass_time(8 * MINUTE)
    assert committed(port) == {1: 1}
    port.pass_time(10 * MINUTE)
    assert committed(port) == {}


def test_an_offset_that_a_transaction_may_change_does_not_expire() -> None:
    port = sim_broker(SETTINGS)
    commit(port, {0: 1, 1: 1})
    in_transaction(port, 70, {0: 5})
    port.pass_time(12 * MINUTE)
    assert committed(port) == {0: 1}
    assert names(port) == {GROUP}
    end(port, 70, commit=False)
    port.pass_time(2 * MINUTE)
    assert names(port) == set()


def test_offsets_of_a_deleted_topic_go_with_it() -> None:
    port = sim_broker()
    port.make_topic("other", 1)
    groups = [f"{GROUP}-{number}" for number in range(8)]
    for group in groups:
        commit(port, {0: 1, 1: 1}, group)
        commit(port, {0: 7}, group, topic="other")
    in_transaction(port, 70, {0: 9}, groups[0])
    port.delete_topic(TOPIC)
    port.settle()
    for group in groups:
        assert committed(port, group) == {}
        assert committed(port, group, "other") == {0: 7}
    end(port, 70, commit=True, group=groups[0])
    assert committed(port, groups[0]) == {}
    port = sim_broker(disk=port.kill())
    assert committed(port, groups[0]) == {}


def test_offsets_of_a_topic_deleted_while_the_shard_was_not_loaded_go_with_the_next_look() -> None:
    port = sim_broker(SETTINGS)
    commit(port, {0: 1})
    port = SimBroker({"offsets.topic.num.partitions": "4", **SETTINGS}, disk=port.kill())
    port.delete_topic(TOPIC)
    port.settle()
    port.pass_time(2 * MINUTE)
    assert committed(port) == {}


def test_a_shard_of_many_groups_is_looked_through_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "EXPIRED_AT_ONCE", 10)
    monkeypatch.setattr(removal, "REMOVAL_BATCH_BYTES", 1000)
    port = sim_broker({**SETTINGS, "offsets.topic.num.partitions": "1"})
    for number in range(60):
        commit(port, {0: 1, 1: 1, 2: 1}, f"{GROUP}-{number}")
    before = batches(port)
    port.pass_time(12 * MINUTE)
    assert batches(port) - before >= 18
    assert names(port) == set()


def test_what_expires_is_removed_in_batches_no_larger_than_the_topic_allows() -> None:
    port = sim_broker({**SETTINGS, "offsets.topic.num.partitions": "1", "message.max.bytes": "1000"}, partitions=60)
    for first in range(0, 60, 6):
        commit(port, dict.fromkeys(range(first, first + 6), 1))
    commit(port, {0: 1}, "others")
    port.pass_time(12 * MINUTE)
    assert names(port) == set()


def test_a_group_that_cannot_be_removed_does_not_stop_the_expiry_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """The topic's limit was lowered below what it takes to name the group."""
    port = sim_broker({**SETTINGS, "offsets.topic.num.partitions": "1"})
    large = "b" * 2000
    for group in ("a", large, "c"):
        commit(port, {0: 1, 1: 1}, group)
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets"}
    change = [{"name": "max.message.bytes", "config_operation": 0, "value": "1000"}]
    port.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [{**resource, "configs": change}]})
    port.pass_time(12 * MINUTE)
    assert names(port) == {large}
    assert "can't be removed" in caplog.text
    change[0]["value"] = "10000"
    port.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [{**resource, "configs": change}]})
    port.pass_time(MINUTE)
    assert names(port) == set()


def test_nothing_stays_of_a_group_whose_only_trace_was_an_id_that_nobody_came_back_with() -> None:
    port = sim_broker({**SETTINGS, "group.min.session.timeout.ms": "1000"})
    for number in range(20):
        required = join(port, group=f"drifter-{number}", session_timeout_ms=int(25 * MINUTE * 1000))
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    port.pass_time(15 * MINUTE)
    assert names(port) == set(), "its record is gone by then"
    port.pass_time(15 * MINUTE)
    assert [group for shard in port.services.groups.shards.loaded() for group in shard.live.classic] == []
