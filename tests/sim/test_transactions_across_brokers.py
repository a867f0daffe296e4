"""Transactions whose coordinator, partitions and groups are on different brokers, in a simulated cluster of three."""

from collections.abc import Callable
from copy import copy
from typing import Any

import pytest

from tests.apis.test_txn_offsets import add_group, commit_offset
from tests.apis.test_txn_offsets import committed as offset_of
from tests.apis.txn import CLASSIC, SECOND, Txn, read_all, read_committed
from tests.sim.across import REPLICATED, Across, Line
from tidelog.coordinator.placement import CONSUMER_OFFSETS, TRANSACTION_STATE, partition_of
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.topic_partition import TopicPartition

VERSIONS = pytest.mark.parametrize("versions", [CLASSIC, SECOND], ids=["first", "second"])


@pytest.fixture
def across() -> Across:
    made = Across()
    made.make_topic("tide")
    return made


def begin(across: Across, coordinator: int, versions: dict[str, int] = CLASSIC) -> Txn:
    txn = Txn(across, across.name_at(coordinator), versions=versions)
    assert txn.init() == ErrorCode.NONE
    return txn


def write(across: Across, txn: Txn, *values: bytes) -> None:
    """One record to each of the three partitions, each led by another broker."""
    for partition, value in enumerate(values):
        if txn.versions is CLASSIC:
            assert txn.add("tide", partition) == ErrorCode.NONE
        told = txn.send("tide", value, partition=partition)
        while told == ErrorCode.NOT_ENOUGH_REPLICAS:  # a coordinator that is just back isn't known to be by all
            across.pass_time(0.1)
            told = txn.send("tide", value, partition=partition)
        assert told == ErrorCode.NONE


def committed(across: Across) -> list[list[bytes]]:
    return [read_committed(across, "tide", partition) for partition in range(3)]


@VERSIONS
@pytest.mark.parametrize("coordinator", [1, 2, 3])
def test_a_transaction_over_all_brokers_is_committed_or_aborted_on_each(
    across: Across, coordinator: int, versions: dict[str, int]
) -> None:
    txn = begin(across, coordinator, versions)
    write(across, txn, b"a", b"b", b"c")
    assert committed(across) == [[], [], []]
    assert txn.commit() == ErrorCode.NONE
    assert committed(across) == [[b"a"], [b"b"], [b"c"]]
    assert txn.state == "CompleteCommit"
    write(across, txn, b"d", b"e", b"f")
    assert txn.abort() == ErrorCode.NONE
    write(across, txn, b"g", b"h", b"i")
    assert txn.commit() == ErrorCode.NONE
    assert committed(across) == [[b"a", b"g"], [b"b", b"h"], [b"c", b"i"]]
    assert read_all(across, "tide", 0) == [b"a", b"d", b"g"]


# ---- brokers that are away ----


def test_a_frozen_broker_holds_up_only_what_was_written_there(across: Across) -> None:
    wide, narrow = begin(across, 1), Txn(across, across.name_at(1, prefix="till"))
    assert narrow.init() == ErrorCode.NONE
    write(across, wide, b"a", b"b", b"c")
    write(across, narrow, b"d", b"e")
    across.machine(3).freeze()
    assert wide.commit() == ErrorCode.NONE
    assert narrow.commit() == ErrorCode.NONE
    assert [read_committed(across, "tide", partition) for partition in (0, 1)] == [[b"a", b"d"], [b"b", b"e"]]
    assert (wide.state, narrow.state) == ("PrepareCommit", "CompleteCommit")
    write(across, narrow, b"f", b"g")
    across.pass_time(4.0)  # it is fenced by now
    assert narrow.commit() == ErrorCode.NONE
    assert narrow.state == "CompleteCommit"
    assert wide.add("tide", 0) == ErrorCode.CONCURRENT_TRANSACTIONS
    across.machine(3).thaw()
    across.world.wait(lambda: wide.state == "CompleteCommit", 30.0, lambda: "the end")
    assert committed(across) == [[b"a", b"d", b"f"], [b"b", b"e", b"g"], [b"c"]]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_broker_that_was_killed_gets_its_markers_when_it_is_back(across: Across, commit: bool) -> None:
    txn = begin(across, 1)
    write(across, txn, b"a", b"b", b"c")
    across.kill(3)
    assert txn.end(commit=commit) == ErrorCode.NONE
    across.pass_time(12.0)
    assert txn.state == ("PrepareCommit" if commit else "PrepareAbort")
    across.start(3)
    across.pass_time(1.0)  # however long it was away
    assert txn.state == ("CompleteCommit" if commit else "CompleteAbort")
    assert committed(across) == ([[b"a"], [b"b"], [b"c"]] if commit else [[], [], []])
    write(across, txn, b"d", b"e", b"f")
    assert txn.commit() == ErrorCode.NONE
    assert [values[-1:] for values in committed(across)] == [[b"d"], [b"e"], [b"f"]]


@VERSIONS
def test_a_coordinator_that_was_killed_in_the_middle_of_an_end_goes_on_with_it(
    across: Across, versions: dict[str, int]
) -> None:
    txn = begin(across, 1, versions)
    write(across, txn, b"a", b"b", b"c")
    across.machine(3).freeze()
    assert txn.commit() == ErrorCode.NONE
    across.kill(1)
    across.machine(3).thaw()
    across.pass_time(3.0)
    across.start(1)
    across.world.wait(lambda: txn.state == "CompleteCommit", 30.0, lambda: "the end")
    assert committed(across) == [[b"a"], [b"b"], [b"c"]]
    write(across, txn, b"d", b"e", b"f")
    assert txn.abort() == ErrorCode.NONE
    assert committed(across) == [[b"a"], [b"b"], [b"c"]]


@VERSIONS
def test_a_frozen_coordinator_holds_up_only_its_own_producers(across: Across, versions: dict[str, int]) -> None:
    stuck, free = begin(across, 3, versions), begin(across, 1, versions)
    for txn in (stuck, free):
        if versions is CLASSIC:
            assert txn.add("tide", 1) == ErrorCode.NONE
    across.machine(3).freeze()
    waits = across.send_at(2, ApiKey.PRODUCE, versions["produce"], produce(stuck, b"x"))
    assert free.send("tide", b"y", partition=1) == ErrorCode.NONE
    assert free.commit() == ErrorCode.NONE
    assert not waits.done
    assert read_committed(across, "tide", 1) == [b"y"]
    assert code(across.answer(waits)) == ErrorCode.NOT_ENOUGH_REPLICAS  # it may come again, and every client knows that
    across.machine(3).thaw()
    across.world.wait(lambda: stuck.send("tide", b"x", partition=1) == ErrorCode.NONE, 30.0, lambda: "the coordinator")
    assert stuck.commit() == ErrorCode.NONE
    across.pass_time(1.0)
    assert read_committed(across, "tide", 1) == [b"y", b"x"]


# ---- a word that comes too late ----


def produce(txn: Txn, value: bytes, partition: int = 1) -> dict[str, Any]:
    sequence = txn.sequences.get(("tide", partition), 0)
    return txn.produce_fields("tide", txn.batch(value, sequence=sequence), partition)


def code(answer: Any) -> int:
    return answer.responses[0].partition_responses[0].error_code


def held_word(across: Across) -> None:
    """What the first broker says doesn't arrive at the second from now on."""
    across.world.network.split("10.0.0.1", "10.0.0.2", one_way=True)


def mark(
    across: Across, txn: Txn, broker_id: int, place: TopicPartition, *, epoch: int, version: int, commit: bool
) -> int:
    """The marker that doesn't get through from the coordinator, as its leader would have got it."""
    marker = {
        "producer_id": txn.id,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": place[0], "partition_indexes": [place[1]]}],
        "coordinator_epoch": 0,
        "transaction_version": version,
    }
    answer = across.ask_at(broker_id, ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [marker]})
    return answer.markers[0].topics[0].partitions[0].error_code


@pytest.mark.parametrize(
    ("client_id", "told"),
    [
        ("broker-9-txn-marker-sender", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("kafka-transactions", ErrorCode.NONE),  # of tools there may be several at once
    ],
)
def test_a_marker_on_a_connection_that_its_coordinator_gave_up_is_refused(
    across: Across, client_id: str, told: ErrorCode
) -> None:
    """It was written again since, and may be taken for the end of the next transaction."""
    txn = begin(across, 1)
    write(across, txn, b"a", b"b", b"c")

    def marker(producer_id: int) -> dict[str, Any]:
        topics = [{"name": "tide", "partition_indexes": [1]}]
        fields = {"producer_id": producer_id, "producer_epoch": 0, "transaction_result": False, "topics": topics}
        return {"markers": [{**fields, "coordinator_epoch": 0}]}

    def code_of(answer: Any) -> int:
        return answer.markers[0].topics[0].partitions[0].error_code

    key = ApiKey.WRITE_TXN_MARKERS
    old = Line(across, 2, client_id)
    assert code_of(old.ask(key, 1, marker(1234))) == ErrorCode.NONE
    new = Line(across, 2, client_id)
    assert code_of(new.ask(key, 1, marker(1234))) == ErrorCode.NONE
    assert code_of(old.ask(key, 1, marker(txn.id))) == told
    assert read_all(across, "tide", 1) == [b"b"]
    assert across.partition("tide", 1).last_stable_offset == (0 if told else 4)


def nothing_hangs(across: Across, topic: str = "tide") -> None:
    for index in range(3):
        partition = across.partition(topic, index)
        assert partition.last_stable_offset == partition.high_watermark


@VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_records_that_were_vouched_for_before_their_transaction_ended_come_too_late(
    across: Across, versions: dict[str, int], commit: bool
) -> None:
    """The coordinator says yes, the transaction ends, its marker is written, and then the yes arrives: appended now,
    the records would be a transaction that nobody ends."""
    txn = begin(across, 1, versions)
    write(across, txn, b"a", b"b", b"c")
    assert txn.abort() == ErrorCode.NONE
    if versions is CLASSIC:
        assert txn.add("tide", 1) == ErrorCode.NONE
    held_word(across)
    late = across.send_at(2, ApiKey.PRODUCE, versions["produce"], produce(txn, b"late"))
    across.pass_time(0.2)
    epoch, old = txn.epoch, copy(txn)
    assert txn.end(commit=commit) == ErrorCode.NONE
    assert not late.done
    second = versions is SECOND
    place = "tide", 1
    assert mark(across, txn, 2, place, epoch=epoch + second, version=2 * second, commit=commit) == ErrorCode.NONE
    across.world.network.heal_all()
    # It may be the marker of an earlier one, so it may be tried again: then the coordinator knows better.
    told = ErrorCode.CONCURRENT_TRANSACTIONS if second else ErrorCode.NOT_ENOUGH_REPLICAS
    assert code(across.answer(late)) == told
    across.world.wait(lambda: txn.state.startswith("Complete"), 30.0, lambda: "the end")
    again = code(across.ask_at(2, ApiKey.PRODUCE, versions["produce"], produce(old, b"late")))
    assert again == (ErrorCode.INVALID_PRODUCER_EPOCH if second else ErrorCode.INVALID_TXN_STATE)
    nothing_hangs(across)
    assert read_all(across, "tide", 1) == [b"b"]
    write(across, txn, b"d", b"e", b"f")  # and the next one isn't bothered
    assert txn.commit() == ErrorCode.NONE
    assert committed(across) == [[b"d"], [b"e"], [b"f"]]


def test_a_partition_whose_transaction_ends_while_another_one_is_asked_about_takes_nothing(across: Across) -> None:
    """One request, two partitions of a broker. In the first the transaction is open already."""
    across.make_topic("ebb", (2, 2))
    txn = begin(across, 1)
    assert txn.add("ebb", 0, 1) == ErrorCode.NONE
    assert txn.send("ebb", b"first", partition=0) == ErrorCode.NONE
    fields = txn.produce_fields("ebb", txn.batch(b"open", sequence=1), 0)
    other = txn.produce_fields("ebb", txn.batch(b"begins", sequence=0), 1)
    fields["topic_data"][0]["partition_data"] += other["topic_data"][0]["partition_data"]
    held_word(across)
    late = across.send_at(2, ApiKey.PRODUCE, 9, fields)
    across.pass_time(0.2)
    assert txn.abort() == ErrorCode.NONE
    marker = {
        "producer_id": txn.id,
        "producer_epoch": txn.epoch,
        "transaction_result": False,
        "topics": [{"name": "ebb", "partition_indexes": [0, 1]}],
        "coordinator_epoch": 0,
    }
    across.ask_at(2, ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})
    across.world.network.heal_all()
    told = across.answer(late).responses[0].partition_responses
    assert [one.error_code for one in told] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    assert [read_all(across, "ebb", index) for index in (0, 1)] == [[b"first"], []]
    for index in (0, 1):
        partition = across.partition("ebb", index)
        assert partition.last_stable_offset == partition.high_watermark


@VERSIONS
def test_a_partition_that_is_not_in_the_transaction_is_refused_by_a_coordinator_elsewhere(
    across: Across, versions: dict[str, int]
) -> None:
    txn, other = begin(across, 1, versions), Txn(across, across.name_at(1, prefix="till"), versions=versions)
    assert other.init() == ErrorCode.NONE
    assert txn.commit() == ErrorCode.INVALID_TXN_STATE
    if versions is CLASSIC:
        assert txn.send("tide", b"never added", partition=1) == ErrorCode.INVALID_TXN_STATE
        assert txn.add("tide", 1) == ErrorCode.NONE
    assert txn.send("tide", b"added", partition=1) == ErrorCode.NONE
    txn.epoch += 1
    assert txn.send("tide", b"of nobody", partition=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    txn.epoch -= 1
    txn.name = other.name
    assert txn.send("tide", b"under another id", partition=2) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    nobody = Txn(across, "", versions=versions)
    nobody.id, nobody.epoch = 1234, 0
    assert nobody.send("tide", b"of no id", partition=2) != ErrorCode.NONE
    assert read_all(across, "tide", 2) == []


# ---- groups ----


def reading(across: Across, versions: dict[str, int], group_broker: int = 2) -> tuple[Txn, str]:
    """A producer whose coordinator is the first broker, and a group that another one coordinates."""
    across.make_topic("input", (3,))
    return begin(across, 1, versions), across.group_at(group_broker)


def add_offset(txn: Txn, group: str, offset: int) -> int:
    if txn.versions is CLASSIC:
        assert add_group(txn, group) == ErrorCode.NONE
    return commit_offset(txn, offset, group_id=group)


@VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_offsets_of_a_group_at_another_broker_count_with_the_transaction(
    across: Across, versions: dict[str, int], commit: bool
) -> None:
    txn, group = reading(across, versions)
    write(across, txn, b"a", b"b", b"c")
    assert add_offset(txn, group, 7) == ErrorCode.NONE
    assert offset_of(across, group=group, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert txn.end(commit=commit) == ErrorCode.NONE
    assert offset_of(across, group=group, stable=True) == (7 if commit else -1, ErrorCode.NONE)
    assert add_offset(txn, group, 9) == ErrorCode.NONE
    assert txn.commit() == ErrorCode.NONE
    assert offset_of(across, group=group, stable=True) == (9, ErrorCode.NONE)


@VERSIONS
def test_offsets_that_were_vouched_for_before_their_transaction_ended_come_too_late(
    across: Across, versions: dict[str, int]
) -> None:
    txn, group = reading(across, versions)
    assert add_offset(txn, group, 7) == ErrorCode.NONE
    assert txn.commit() == ErrorCode.NONE
    if versions is CLASSIC:
        assert add_group(txn, group) == ErrorCode.NONE
    held_word(across)
    asked = {
        "transactional_id": txn.name,
        "group_id": group,
        "producer_id": txn.id,
        "producer_epoch": txn.epoch,
        "topics": [{"name": "input", "partitions": [{"partition_index": 0, "committed_offset": 8}]}],
    }
    late = across.send_at(2, ApiKey.TXN_OFFSET_COMMIT, 5 if versions is SECOND else 3, asked)
    across.pass_time(0.2)
    second, epoch = versions is SECOND, txn.epoch
    assert txn.abort() == ErrorCode.NONE
    index = partition_of(group, 3)
    place = CONSUMER_OFFSETS, index
    assert mark(across, txn, 2, place, epoch=epoch + second, version=2 * second, commit=False) == ErrorCode.NONE
    assert not late.done
    across.world.network.heal_all()
    # The epoch is looked at first; what is tried again is refused by the transaction's coordinator.
    told = ErrorCode.INVALID_PRODUCER_EPOCH if second else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert across.answer(late).topics[0].partitions[0].error_code == told
    across.world.wait(lambda: txn.state == "CompleteAbort", 30.0, lambda: "the end")
    assert offset_of(across, group=group, stable=True) == (7, ErrorCode.NONE)
    partition = across.partition(CONSUMER_OFFSETS, index)
    assert partition.last_stable_offset == partition.high_watermark


@VERSIONS
def test_offsets_wait_for_a_frozen_coordinator_no_longer_than_it_is_let_be(
    across: Across, versions: dict[str, int]
) -> None:
    across.make_topic("input", (3,))
    txn, group = begin(across, 3, versions), across.group_at(2)
    if versions is CLASSIC:
        assert add_group(txn, group) == ErrorCode.NONE
    across.machine(3).freeze()
    assert commit_offset(txn, 7, group_id=group) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    across.machine(3).thaw()
    across.world.wait(lambda: commit_offset(txn, 7, group_id=group) == ErrorCode.NONE, 30.0, lambda: "the coordinator")
    assert txn.commit() == ErrorCode.NONE
    across.pass_time(1.0)
    assert offset_of(across, group=group, stable=True) == (7, ErrorCode.NONE)


# ---- who finds whom ----


def test_every_broker_names_the_same_coordinators_and_the_others_send_clients_away(across: Across) -> None:
    for key_type, names in ((1, ["bank-1", "bank-2", "bank-3"]), (0, ["group-1", "group-2", "group-3"])):
        fields = {"key_type": key_type, "coordinator_keys": names}
        told = [across.ask_at(broker, ApiKey.FIND_COORDINATOR, 4, fields).coordinators for broker in (1, 2, 3)]
        assert told[0] == told[1] == told[2]
        topic = CONSUMER_OFFSETS if key_type == 0 else TRANSACTION_STATE
        assert [one.node_id for one in told[0]] == [across.coordinator(name, topic) for name in names]
    name = across.name_at(1)
    asked = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    codes = [across.ask_at(broker, ApiKey.INIT_PRODUCER_ID, 4, asked).error_code for broker in (1, 2, 3)]
    assert codes == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR]


def test_a_producer_goes_on_at_its_coordinator_after_that_was_killed(across: Across) -> None:
    txn = begin(across, 2)
    write(across, txn, b"a", b"b", b"c")
    across.kill(2)
    answer = across.ask_at(1, ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [txn.name]})
    assert answer.coordinators[0].error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    across.start(2)
    across.world.wait(lambda: txn.commit() == ErrorCode.NONE, 30.0, lambda: "the coordinator")
    assert committed(across) == [[b"a"], [b"b"], [b"c"]]


def test_transactions_are_looked_after_by_brokers_that_nobody_asked(across: Across) -> None:
    """The topic came when all were up: whoever comes to lead a part of it later has to know."""
    across.pass_time(2.0)
    for broker_id in (1, 2, 3):
        transactions = across.broker(broker_id).services.transactions
        assert {shard.index for shard in transactions.shards.loaded()} == {
            index for index in range(3) if across.leader(TRANSACTION_STATE, index) == broker_id
        }


def test_a_transaction_of_a_dead_producer_is_aborted_on_all_brokers_when_its_time_is_over(across: Across) -> None:
    txn = Txn(across, across.name_at(3))
    assert txn.init(timeout_ms=1000) == ErrorCode.NONE
    write(across, txn, b"a", b"b", b"c")
    across.world.wait(lambda: txn.state == "CompleteAbort", 10.0, lambda: "the abort")
    nothing_hangs(across)
    assert committed(across) == [[], [], []]


def test_markers_for_a_topic_that_was_deleted_are_not_waited_for(across: Across) -> None:
    across.make_topic("ebb", (3,))
    txn = begin(across, 1)
    write(across, txn, b"a", b"b", b"c")
    assert txn.add("ebb", 0) == ErrorCode.NONE
    assert txn.send("ebb", b"gone", partition=0) == ErrorCode.NONE
    across.machine(3).freeze()
    assert txn.commit() == ErrorCode.NONE
    deleted = across.ask_at(2, ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "ebb"}], "timeout_ms": 10_000})
    assert deleted.responses[0].error_code == ErrorCode.NONE
    across.machine(3).thaw()
    across.world.wait(lambda: txn.state == "CompleteCommit", 30.0, lambda: "the end")
    assert committed(across) == [[b"a"], [b"b"], [b"c"]]


# ---- coordinators and leaders that move ----


def replicated() -> Across:
    made = Across(REPLICATED)
    made.make_topic("tide", replicas=3)
    made.pass_time(3.0)  # the replicas are in sync
    return made


def moved(across: Across, name: str, before: int) -> None:
    across.world.wait(lambda: across.coordinator(name) not in (before, -1), 30.0, lambda: "another coordinator")


def again(across: Across, ask: Callable[[], int]) -> None:
    """Until it is done: clients ask again after all of these."""

    def done() -> bool:
        told = ask()
        assert told in (ErrorCode.NONE, *RETRIED), ErrorCode(told).name
        return told == ErrorCode.NONE

    across.world.wait(done, 30.0, lambda: "an answer that is no error")


RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


@VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_is_ended_by_the_coordinator_that_takes_over(versions: dict[str, int], commit: bool) -> None:
    across = replicated()
    txn = begin(across, 2, versions)
    write(across, txn, b"a", b"b", b"c")
    across.kill(2)
    moved(across, txn.name, 2)
    again(across, lambda: txn.end(commit=commit))
    across.world.wait(lambda: txn.state.startswith("Complete"), 30.0, lambda: "the end")
    assert committed(across) == ([[b"a"], [b"b"], [b"c"]] if commit else [[], [], []])
    for partition, value in enumerate((b"d", b"e", b"f")):
        if versions is CLASSIC:
            again(across, lambda partition=partition: txn.add("tide", partition))
        again(across, lambda partition=partition, value=value: txn.send("tide", value, partition=partition))
    again(across, txn.commit)
    across.world.wait(lambda: txn.state == "CompleteCommit", 30.0, lambda: "the end")
    assert [values[-1:] for values in committed(across)] == [[b"d"], [b"e"], [b"f"]]


@VERSIONS
def test_an_end_that_was_decided_is_carried_out_by_the_coordinator_that_takes_over(versions: dict[str, int]) -> None:
    """It is killed in the moment of its answer, with markers on their way; nobody asks for the end again."""
    across = replicated()
    txn = begin(across, 2, versions)
    write(across, txn, b"a", b"b", b"c")
    asked = across.send_at(2, ApiKey.END_TXN, versions["end"], txn.end_fields(commit=True))
    assert across.answer(asked).error_code == ErrorCode.NONE
    across.kill(2)
    moved(across, txn.name, 2)
    across.world.wait(lambda: txn.state == "CompleteCommit", 30.0, lambda: "the end")
    assert committed(across) == [[b"a"], [b"b"], [b"c"]]


def test_offsets_of_a_transaction_survive_the_coordinators_of_both_the_group_and_the_transaction() -> None:
    across = replicated()
    across.make_topic("input", (3,), replicas=3)
    across.pass_time(2.0)
    txn, group = begin(across, 2), across.group_at(2)
    assert add_offset(txn, group, 7) == ErrorCode.NONE
    across.kill(2)
    moved(across, txn.name, 2)
    again(across, txn.commit)
    across.world.wait(lambda: txn.state == "CompleteCommit", 30.0, lambda: "the end")
    across.world.wait(lambda: offset_of(across, group=group, stable=True) == (7, 0), 30.0, lambda: "the offset")
