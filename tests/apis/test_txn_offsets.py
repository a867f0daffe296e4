"""Offsets in a transaction: they count when it is committed, and not before."""

from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker
from tests.apis.txn import CLASSIC, SECOND, Asks, Txn, fetch
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

both = pytest.mark.parametrize("versions", [CLASSIC, SECOND], ids=["classic", "second"])


@pytest.fixture
def sim_broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("input", 2)
    fields = {"key_type": 0, "coordinator_keys": ["readers"]}
    assert made.ask(ApiKey.FIND_COORDINATOR, 4, fields).coordinators[0].error_code == 0
    return made


def add_group(txn: Txn, group: str = "readers", version: int = 3) -> int:
    fields = {
        "transactional_id": txn.name,
        "producer_id": txn.id,
        "producer_epoch": txn.epoch,
        "group_id": group,
    }
    return txn.sim_broker.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, fields).error_code


def commit_offset(txn: Txn, offset: int, version: int | None = None, **member: Any) -> int:
    """TxnOffsetCommit for `input` 0; the error."""
    if version is None:
        version = 5 if txn.versions is SECOND else 3
    fields = {
        "transactional_id": txn.name,
        "group_id": "readers",
        "producer_id": txn.id,
        "producer_epoch": txn.epoch,
        **member,
        "topics": [{"name": "input", "partitions": [{"partition_index": 0, "committed_offset": offset}]}],
    }
    return txn.sim_broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, fields).topics[0].partitions[0].error_code


def committed(sim_broker: Asks, *, stable: bool = False, group: str = "readers") -> tuple[int, int]:
    """(offset, error) of `input` 0 in the group."""
    asked = {"group_id": group, "topics": [{"name": "input", "partition_indexes": [0]}]}
    answer = sim_broker.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [asked], "require_stable": stable})
    told = answer.groups[0].topics[0].partitions[0]
    return told.committed_offset, told.error_code


def joined(sim_broker: SimBroker, versions: dict[str, int]) -> Txn:
    txn = Txn(sim_broker, versions=versions)
    assert txn.init() == 0
    if versions is CLASSIC:
        assert add_group(txn) == 0
    assert commit_offset(txn, 7) == 0
    return txn


@both
def test_they_are_invisible_until_the_commit(sim_broker: SimBroker, versions: dict[str, int]) -> None:
    txn = joined(sim_broker, versions)
    assert committed(sim_broker) == (-1, 0)
    assert committed(sim_broker, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert txn.commit() == 0
    assert committed(sim_broker) == (7, 0)
    assert committed(sim_broker, stable=True) == (7, 0)


@both
def test_they_are_forgotten_with_an_abort(sim_broker: SimBroker, versions: dict[str, int]) -> None:
    txn = joined(sim_broker, versions)
    assert txn.abort() == 0
    assert committed(sim_broker, stable=True) == (-1, 0)


@both
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_restart_changes_nothing(sim_broker: SimBroker, versions: dict[str, int], commit: bool) -> None:
    txn = joined(sim_broker, versions)
    txn.sim_broker = after = SimBroker(disk=sim_broker.kill())
    assert committed(after, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert txn.end(commit=commit) == 0
    again = SimBroker(disk=after.kill())
    assert committed(again, stable=True) == ((7, 0) if commit else (-1, 0))


def test_a_group_that_did_not_join_is_refused(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init()
    assert commit_offset(txn, 7) == ErrorCode.INVALID_TXN_STATE
    assert commit_offset(txn, 7, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    assert committed(sim_broker, stable=True) == (-1, 0)


def test_a_delayed_commit_does_not_join_a_later_transaction(sim_broker: SimBroker) -> None:
    txn = joined(sim_broker, SECOND)
    before = txn.epoch
    assert txn.commit() == 0
    txn.epoch = before
    assert commit_offset(txn, 3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(sim_broker, stable=True) == (7, 0)


def test_members_are_fenced_by_generation_and_id(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init()
    add_group(txn)
    assert commit_offset(txn, 1, generation_id=3, member_id="nobody") == ErrorCode.ILLEGAL_GENERATION
    member = join(sim_broker)
    assert commit_offset(txn, 1, generation_id=9, member_id=member) == ErrorCode.ILLEGAL_GENERATION
    assert commit_offset(txn, 1, generation_id=1, member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_offset(txn, 1, generation_id=1, member_id=member) == 0


def join(sim_broker: SimBroker) -> str:
    """A group of one, in its first generation."""
    fields: dict[str, Any] = {
        "group_id": "readers",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    first = sim_broker.ask(ApiKey.JOIN_GROUP, 5, fields)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    answer = sim_broker.ask(ApiKey.JOIN_GROUP, 5, {**fields, "member_id": first.member_id})
    assert (answer.error_code, answer.generation_id) == (0, 1)
    fields = {
        "group_id": "readers",
        "generation_id": 1,
        "member_id": answer.member_id,
        "assignments": [{"member_id": answer.member_id, "assignment": b""}],
    }
    assert sim_broker.ask(ApiKey.SYNC_GROUP, 3, fields).error_code == 0
    return answer.member_id


def test_a_timeout_frees_those_who_wait_for_stable_offsets(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init(timeout_ms=2000)
    add_group(txn)
    commit_offset(txn, 7)
    sim_broker.pass_time(1.9)
    assert committed(sim_broker, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    sim_broker.pass_time(0.2)
    assert committed(sim_broker, stable=True) == (-1, 0)


def test_records_and_offsets_are_committed_together(sim_broker: SimBroker) -> None:
    sim_broker.make_topic("output")
    txn = joined(sim_broker, SECOND)
    assert txn.send("output", b"result") == 0
    assert fetch(sim_broker, "output").last_stable_offset == 0
    assert txn.commit() == 0
    assert committed(sim_broker) == (7, 0)
    assert fetch(sim_broker, "output").last_stable_offset == 2


def test_unknown_producers_and_groups(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init()
    txn.epoch += 1
    assert add_group(txn) == ErrorCode.PRODUCER_FENCED
    assert add_group(txn, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    txn.id += 1
    assert add_group(txn) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert commit_offset(txn, 1) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def many_fields(txn: Txn, count: int) -> dict[str, Any]:
    named = [{"partition_index": number % 2, "committed_offset": number} for number in range(count)]
    return {
        "transactional_id": txn.name,
        "group_id": "readers",
        "producer_id": txn.id,
        "producer_epoch": txn.epoch,
        "topics": [{"name": "input", "partitions": named}],
    }


@both
def test_very_many_offsets_count_with_their_transaction(sim_broker: SimBroker, versions: dict[str, int]) -> None:
    txn = joined(sim_broker, versions)
    answer = sim_broker.ask(ApiKey.TXN_OFFSET_COMMIT, 5 if versions is SECOND else 3, many_fields(txn, 25_001))
    assert {one.error_code for one in answer.topics[0].partitions} == {0}
    assert committed(sim_broker) == (-1, 0)
    assert txn.commit() == 0
    assert committed(sim_broker, stable=True) == (25_000, 0)


@both
def test_a_transaction_that_ends_while_its_offsets_are_prepared_leaves_nothing_open(
    sim_broker: SimBroker, versions: dict[str, int]
) -> None:
    """They would belong to no transaction, and whoever needs stable offsets would wait for ever."""
    txn = Txn(sim_broker, versions=versions)
    assert txn.init() == 0
    if versions is CLASSIC:
        assert add_group(txn) == 0
    asked = sim_broker.send(ApiKey.TXN_OFFSET_COMMIT, 5 if versions is SECOND else 3, many_fields(txn, 25_001))
    assert txn.abort() == 0
    sim_broker.pass_time(5)
    assert 0 not in {one.error_code for one in asked.response.topics[0].partitions}
    assert committed(sim_broker, stable=True) == (-1, 0)
    assert txn.init() == 0


def test_of_a_consumer_group_with_members_who_says_nothing_of_itself_commits_and_who_does_is_checked(
    sim_broker: SimBroker,
) -> None:
    fields = {"group_id": "readers", "member_id": "one", "member_epoch": 0, "rebalance_timeout_ms": 5000}
    heartbeat = {**fields, "subscribed_topic_names": ["input"], "topic_partitions": []}
    epoch = sim_broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat).member_epoch
    txn = Txn(sim_broker, versions=SECOND)
    assert txn.init() == 0
    assert commit_offset(txn, 1) == 0, "as clients before KIP-447 do"
    assert commit_offset(txn, 1, generation_id=epoch, member_id="one") == 0
    assert commit_offset(txn, 1, generation_id=epoch + 1, member_id="one") == ErrorCode.ILLEGAL_GENERATION
    for claim in ({"generation_id": -2}, {"member_id": "two"}, {"group_instance_id": "boat"}):
        assert commit_offset(txn, 1, **claim) == ErrorCode.UNKNOWN_MEMBER_ID
