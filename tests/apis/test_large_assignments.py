"""Targets that take long to compute, in steps: what happens to the group meanwhile, and what members are given then.

Here every target is one of these, and each step of it takes a turn.
"""

from random import Random
from typing import Any

import pytest

from tests.apis.test_consumer_group_heartbeat import GROUP, Port
from tidelog.coordinator.group.consumer import target_job
from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

STEPS_S = 0.5
"""Enough for a target of these small groups, a step each millisecond."""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Port:
    monkeypatch.setattr(target_job, "AT_ONCE_US", -1)
    made = Port()
    made.topic("tides", 12)
    made.topic("ebb", 3)
    made.sim_broker.loop.steps_a_slice = lambda: 1  # type: ignore[method-assign]
    return made


def group(port: Port) -> ConsumerGroup:
    found = port.sim_broker.services.groups.shard_of(GROUP).machine.newest.groups[GROUP]
    assert isinstance(found, ConsumerGroup)
    return found


def settle(port: Port, epochs: dict[str, int], uses: dict[str, dict[str, list[int]]] | None = None) -> None:
    """Members beat, and use what they are given, until all have what they are to have."""
    using = uses if uses is not None else {member_id: {} for member_id in epochs}
    for _ in range(20):
        port.sim_broker.pass_time(STEPS_S)
        for member_id in epochs:
            answer = port.beat(member_id, epochs[member_id], uses=using[member_id])
            told = port.told(answer)
            epochs[member_id] = answer.member_epoch
            if told is not None:
                using[member_id] = told
        if group(port).state == "Stable" and len(set(epochs.values())) == 1:
            return
    raise AssertionError(f"the group isn't stable: {group(port)}")


def owned(port: Port) -> dict[str, int]:
    """How many partitions each member has."""
    return {
        member_id: sum(map(len, member.assigned.values())) for member_id, member in sorted(group(port).members.items())
    }


def test_the_answer_comes_at_once_and_the_assignment_with_a_later_heartbeat(port: Port) -> None:
    answer = port.join("a", "tides")
    assert (answer.error_code, port.told(answer)) == (0, {})
    assert port.describe().group_state == "Assigning"
    port.sim_broker.pass_time(STEPS_S)
    again = port.beat("a", answer.member_epoch, uses={})
    assert port.told(again) == {"tides": list(range(12))}
    assert port.describe().group_state == "Stable"


def test_several_members_share_as_if_it_were_computed_at_once(port: Port) -> None:
    epochs = {member_id: port.join(member_id, "tides", "ebb").member_epoch for member_id in "abc"}
    settle(port, epochs)
    assert owned(port) == {"a": 5, "b": 5, "c": 5}


def test_who_comes_while_it_is_computed_has_its_part_in_the_next(port: Port) -> None:
    first = port.join("a", "tides")
    port.sim_broker.pass_time(0.005)
    assert group(port).target_epoch < group(port).epoch
    epochs = {"a": first.member_epoch, "b": port.join("b", "tides").member_epoch}
    port.sim_broker.pass_time(STEPS_S)
    assert list(group(port).target) == ["a"]
    settle(port, epochs)
    assert owned(port) == {"a": 6, "b": 6}


def test_what_is_computed_for_somebody_who_left_is_computed_anew(port: Port) -> None:
    epochs = {member_id: port.join(member_id, "tides").member_epoch for member_id in "ab"}
    settle(port, epochs)
    epochs["c"] = port.join("c", "tides").member_epoch
    port.sim_broker.pass_time(0.005)
    assert port.beat("b", -1).error_code == 0
    del epochs["b"]
    port.sim_broker.pass_time(STEPS_S)
    assert sorted(group(port).target) == ["a", "c"]
    settle(port, epochs)
    assert owned(port) == {"a": 6, "c": 6}


def test_a_group_that_is_gone_when_it_is_computed_gets_nothing(port: Port) -> None:
    port.join("a", "tides")
    port.sim_broker.pass_time(0.005)
    assert port.beat("a", -1).error_code == 0
    assert port.sim_broker.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]}).results[0].error_code == 0
    end = port.log_end()
    port.sim_broker.pass_time(STEPS_S)
    assert port.log_end() == end
    answer = port.join("a", "tides")
    settle(port, {"a": answer.member_epoch})
    assert owned(port) == {"a": 12}


def test_members_that_come_and_go_all_the_time_do_not_keep_the_others_waiting(port: Port) -> None:
    """After some tries in vain, a heartbeat computes the target itself."""
    epochs = {"a": port.join("a", "tides").member_epoch}
    settle(port, epochs)
    for number in range(10):
        port.join(f"guest-{number}", "tides")
        port.sim_broker.pass_time(0.005)
        port.beat(f"guest-{number}", -1)
        answer = port.beat("a", epochs["a"])
        epochs["a"] = answer.member_epoch
        if group(port).target_epoch == group(port).epoch:
            break
    else:
        raise AssertionError("no target was ever as new as the group")
    settle(port, epochs, {"a": {"tides": list(range(12))}})
    assert owned(port) == {"a": 12}


def test_a_target_that_no_batch_holds_is_not_tried_without_end(port: Port, caplog: pytest.LogCaptureFixture) -> None:
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets"}
    config = {"name": "max.message.bytes", "config_operation": 0, "value": "150"}
    answer = port.join("a", "tides")
    port.sim_broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [{**resource, "configs": [config]}]})
    for _ in range(20):
        port.sim_broker.pass_time(0.05)
        assert port.beat("a", answer.member_epoch, uses={}).error_code == 0
    assert caplog.text.count("its assignment isn't made") == 1


@pytest.mark.parametrize("seed", range(8))
def test_whatever_members_do_nobody_has_what_another_has_and_in_the_end_all_is_given(port: Port, seed: int) -> None:
    random = Random(seed)
    epochs: dict[str, int] = {}
    uses: dict[str, dict[str, list[int]]] = {}

    def beat(member_id: str) -> None:
        answer = port.beat(member_id, epochs[member_id], uses=uses[member_id])
        if answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH:
            epochs[member_id], uses[member_id] = 0, {}
            return
        told = port.told(answer)
        epochs[member_id] = answer.member_epoch
        uses[member_id] = told if told is not None else uses[member_id]

    for number in range(60):
        port.sim_broker.pass_time(random.choice([0, 0.001, 0.01, 0.1]))
        what = random.random()
        if what < 0.25 and len(epochs) < 6:
            name = f"m{number}"
            answer: Any = port.join(name, *random.choice([("tides",), ("tides", "ebb"), ("ebb",)]))
            epochs[name], uses[name] = answer.member_epoch, port.told(answer) or {}
        elif what < 0.4 and len(epochs) > 1:
            gone = random.choice(sorted(epochs))
            port.beat(gone, -1)
            del epochs[gone], uses[gone]
        elif epochs:
            beat(random.choice(sorted(epochs)))
    name = "last"
    answer = port.join(name, "tides", "ebb")
    epochs[name], uses[name] = answer.member_epoch, port.told(answer) or {}
    settle(port, epochs, uses)
    assert sum(owned(port).values()) == 15


@pytest.mark.parametrize(("partitions", "at_once"), [(4000, True), (6000, False)])
def test_ten_thousand_partitions_are_the_most_that_a_heartbeat_assigns_by_itself(
    partitions: int, at_once: bool
) -> None:
    """It takes about a microsecond each, and the member that is given them three more."""
    port = Port()
    for name in "tides", "ebb":
        port.topic(name, partitions)
    told = port.told(port.join("a", "tides", "ebb"))
    assert bool(told) is at_once
