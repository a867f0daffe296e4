"""ListGroups, DescribeGroups, DeleteGroups, OffsetDelete, for groups that only commit offsets."""

import pytest

from tests.apis.offsets import GROUP, TOPIC, batches, commit, committed, fetch, sim_broker
from tests.apis.test_offset_fetch import end, in_transaction
from tidelog.coordinator.group import removal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import RANGES, ApiKey


@pytest.mark.parametrize("version", range(RANGES[ApiKey.LIST_GROUPS].max + 1))
def test_groups_are_listed(version: int) -> None:
    port = sim_broker()
    assert port.ask(ApiKey.LIST_GROUPS, version, {}).groups == []
    names = {f"{GROUP}-{number}" for number in range(12)}
    for name in names:
        commit(port, {0: 1}, name)
    listed = port.ask(ApiKey.LIST_GROUPS, version, {}).groups
    assert {one.group_id for one in listed} == names
    assert len(listed) == len(names)
    assert {one.protocol_type for one in listed} == {""}
    assert {one.group_state for one in listed} == {"Empty" if version >= 4 else ""}
    assert {one.group_type for one in listed} == {"classic" if version >= 5 else ""}


def test_groups_are_listed_by_state_and_type() -> None:
    port = sim_broker()
    commit(port, {0: 1})

    def found(states: list[str], types: list[str]) -> bool:
        fields = {"states_filter": states, "types_filter": types}
        return bool(port.ask(ApiKey.LIST_GROUPS, 5, fields).groups)

    assert found(["empty"], [])
    assert found(["Stable", " EMPTY "], ["Classic"])
    assert found([], ["consumer", "classic"])
    assert not found(["Stable"], [])
    assert not found([], ["consumer"])
    assert not found(["Empty"], ["of another kind"])


def test_a_broker_without_groups_lists_none() -> None:
    from tests.apis.sim_broker import SimBroker

    answer = SimBroker().ask(ApiKey.LIST_GROUPS, 5, {})
    assert (answer.error_code, answer.groups) == (0, [])


def test_groups_are_listed_after_a_crash() -> None:
    port = sim_broker()
    names = {f"{GROUP}-{number}" for number in range(12)}
    for name in names:
        commit(port, {0: 1}, name)
    port = sim_broker(disk=port.kill())
    assert {one.group_id for one in port.ask(ApiKey.LIST_GROUPS, 5, {}).groups} == names


@pytest.mark.parametrize("version", range(RANGES[ApiKey.DESCRIBE_GROUPS].max + 1))
def test_groups_are_described(version: int) -> None:
    port = sim_broker()
    commit(port, {0: 1})
    fields = {"groups": [GROUP, "nobody"], "include_authorized_operations": version >= 3}
    known, unknown = port.ask(ApiKey.DESCRIBE_GROUPS, version, fields).groups
    assert (known.error_code, known.group_state, known.protocol_type, known.members) == (0, "Empty", "", [])
    assert known.authorized_operations == (0b1101_0100_1000 if version >= 3 else -(2**31))
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert unknown.error_message == ("Group nobody not found." if version >= 6 else None)


@pytest.mark.parametrize("version", range(RANGES[ApiKey.DELETE_GROUPS].max + 1))
def test_groups_are_deleted_with_their_offsets(version: int) -> None:
    port = sim_broker()
    commit(port, {0: 1, 1: 1})
    in_transaction(port, 70, {2: 4})
    commit(port, {0: 1}, "others")
    results = port.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": [GROUP, "nobody"]}).results
    assert [(one.group_id, one.error_code) for one in results] == [
        (GROUP, 0),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    end(port, 70, commit=True)
    assert committed(port) == {}
    assert committed(port, "others") == {0: 1}
    port = sim_broker(disk=port.kill())
    assert {one.group_id for one in port.ask(ApiKey.LIST_GROUPS, 5, {}).groups} == {"others"}


def test_a_group_with_many_offsets_is_deleted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "REMOVAL_BATCH_BYTES", 200)
    port = sim_broker(partitions=30)
    commit(port, dict.fromkeys(range(30), 1))
    before = batches(port)
    results = port.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]}).results
    assert results[0].error_code == 0
    assert batches(port) - before >= 7
    assert fetch(port) == {}


def test_a_piece_is_no_larger_than_a_batch_may_be() -> None:
    """Names count by their bytes."""
    port = sim_broker({"message.max.bytes": "2000"}, partitions=60)
    group = "Mannschaft-für-die-Überfahrt-" + "ü" * 40
    for first in range(0, 60, 6):
        assert commit(port, dict.fromkeys(range(first, first + 6), 1), group) == {0}
    assert port.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group]}).results[0].error_code == 0
    assert fetch(port, group) == {}


def test_offsets_are_deleted_partition_by_partition() -> None:
    port = sim_broker()
    commit(port, {0: 1, 1: 1, 2: 1})
    in_transaction(port, 70, {0: 9})
    topics = [
        {"name": TOPIC, "partitions": [{"partition_index": 0}, {"partition_index": 2}, {"partition_index": 3}]},
        {"name": "nowhere", "partitions": [{"partition_index": 0}]},
    ]
    answer = port.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": GROUP, "topics": topics})
    assert answer.error_code == 0
    assert [[one.error_code for one in topic.partitions] for topic in answer.topics] == [[0, 0, 3], [3]]
    end(port, 70, commit=True)
    assert committed(port) == {1: 1}


def test_offsets_of_a_group_that_is_not_there_can_not_be_deleted() -> None:
    port = sim_broker()
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    answer = port.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": GROUP, "topics": topics})
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    answer = port.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": "", "topics": topics})
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
