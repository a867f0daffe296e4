"""The marker of a transaction with very many offsets: what it changes is made in steps, and counts as a whole."""

import pytest

from tests.apis.offsets import GROUP, commit, commit_fields, committed, shard, sim_broker
from tests.apis.test_offset_fetch import in_transaction
from tidelog.coordinator.entry import Marker
from tidelog.coordinator.group import ending
from tidelog.coordinator.group.state import GroupsState
from tidelog.wire.keys import ApiKey

COUNT = 300
IN_TXN = dict.fromkeys(range(COUNT), 7)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "FEW", 10)


def test_its_fold_has_nothing_left_to_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    port = sim_broker(partitions=COUNT)
    commit(port, {0: 1})
    in_transaction(port, 70, IN_TXN)
    harness = shard(port)
    steps = ending.prepare(harness.machine.newest, Marker(70, 0, committed=True))
    count = sum(1 for _ in steps)
    assert count >= COUNT // ending.A_STEP
    merged: list[bool] = []
    real = ending.is_prepared

    def noted(state: GroupsState, marker: Marker) -> bool:
        merged.append(real(state, marker))
        return merged[-1]

    monkeypatch.setattr(ending, "is_prepared", noted)
    monkeypatch.setattr(ending, "whole", None)  # who would merge in a decision fails
    port.wait(harness.end_transaction(70, 0, 0, True))
    assert committed(port) == IN_TXN
    assert merged == [True]
    assert not harness.machine.newest.pending
    assert not harness.machine.newest.writers


def test_a_commit_that_comes_meanwhile_stands() -> None:
    port = sim_broker(partitions=COUNT)
    in_transaction(port, 70, IN_TXN)
    port.hold_syncs()
    ended = shard(port).end_transaction(70, 0, 0, True)
    asked = port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, {3: 9}))
    port.let_sync()
    port.wait(ended)
    assert port.answer(asked).topics[0].partitions[0].error_code == 0
    assert committed(port) == {**IN_TXN, 3: 9}


def test_a_commit_in_between_was_later_than_the_transaction() -> None:
    port = sim_broker(partitions=COUNT)
    in_transaction(port, 70, IN_TXN)
    commit(port, {5: 2})
    port.wait(shard(port).end_transaction(70, 0, 0, True))
    assert committed(port) == {**IN_TXN, 5: 2}


def test_offsets_that_go_while_it_is_prepared_stay_gone() -> None:
    port = sim_broker(partitions=COUNT)
    in_transaction(port, 70, IN_TXN)
    ended = shard(port).end_transaction(70, 0, 0, True)
    port.delete_topic("logbook")
    port.wait(ended)
    port.settle()
    assert committed(port) == {}


@pytest.mark.parametrize("commits", [True, False])
def test_it_is_found_again_by_a_restart(commits: bool) -> None:
    port = sim_broker(partitions=COUNT)
    commit(port, {0: 1, 1: 1})
    in_transaction(port, 70, IN_TXN)
    port.wait(shard(port).end_transaction(70, 0, 0, commits))
    expected = IN_TXN if commits else {0: 1, 1: 1}
    assert committed(port) == expected
    port = sim_broker(disk=port.kill())
    port.ask(ApiKey.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": None})  # has it loaded
    port.pass_time(1)
    assert committed(port) == expected
