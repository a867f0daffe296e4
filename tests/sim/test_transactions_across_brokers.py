"""Transactions whose coordinator, partitions and groups are on different brokers, in a simulated cluster of three."""

from typing import Any

import pytest

from tests.apis.txn import CLASSIC, SECOND, Txn, read_all, read_committed
from tests.sim.across import Across
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

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


def write(txn: Txn, *values: bytes) -> None:
    """One record to each of the three partitions, each led by another broker."""
    for partition, value in enumerate(values):
        if txn.versions is CLASSIC:
            assert txn.add("tide", partition) == ErrorCode.NONE
        assert txn.send("tide", value, partition=partition) == ErrorCode.NONE


def committed(across: Across) -> list[list[bytes]]:
    return [read_committed(across, "tide", partition) for partition in range(3)]


@VERSIONS
@pytest.mark.parametrize("coordinator", [1, 2, 3])
def test_a_transaction_over_all_brokers_is_committed_or_aborted_on_each(
    across: Across, coordinator: int, versions: dict[str, int]
) -> None:
    txn = begin(across, coordinator, versions)
    write(txn, b"a", b"b", b"c")
    assert committed(across) == [[], [], []]
    assert txn.commit() == ErrorCode.NONE
    assert committed(across) == [[b"a"], [b"b"], [b"c"]]
    assert txn.state == "CompleteCommit"
    write(txn, b"d", b"e", b"f")
    assert txn.abort() == ErrorCode.NONE
    write(txn, b"g", b"h", b"i")
    assert txn.commit() == ErrorCode.NONE
    assert committed(across) == [[b"a", b"g"], [b"b", b"h"], [b"c", b"i"]]
    assert read_all(across, "tide", 0) == [b"a", b"d", b"g"]


# ---- brokers that are away ----


def test_a_frozen_broker_holds_up_only_what_was_written_there(across: Across) -> None:
    wide, narrow = begin(across, 1), Txn(across, across.name_at(1, prefix="till"))
    assert narrow.init() == ErrorCode.NONE
    write(wide, b"a", b"b", b"c")
    write(narrow, b"d", b"e")
    across.machine(3).freeze()
    assert wide.commit() == ErrorCode.NONE
    assert narrow.commit() == ErrorCode.NONE
    assert [read_committed(across, "tide", partition) for partition in (0, 1)] == [[b"a", b"d"], [b"b", b"e"]]
    assert (wide.state, narrow.state) == ("PrepareCommit", "CompleteCommit")
    write(narrow, b"f", b"g")
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
    write(txn, b"a", b"b", b"c")
    across.kill(3)
    assert txn.end(commit=commit) == ErrorCode.NONE
    across.pass_time(3.0)
    assert txn.state == ("PrepareCommit" if commit else "PrepareAbort")
    across.start(3)
    across.world.wait(lambda: txn.state.startswith("Complete"), 30.0, lambda: "the end")
    assert committed(across) == ([[b"a"], [b"b"], [b"c"]] if commit else [[], [], []])
    write(txn, b"d", b"e", b"f")
    assert txn.commit() == ErrorCode.NONE
    assert [values[-1:] for values in committed(across)] == [[b"d"], [b"e"], [b"f"]]


@VERSIONS
def test_a_coordinator_that_was_killed_in_the_middle_of_an_end_goes_on_with_it(
    across: Across, versions: dict[str, int]
) -> None:
    txn = begin(across, 1, versions)
    write(txn, b"a", b"b", b"c")
    across.machine(3).freeze()
    assert txn.commit() == ErrorCode.NONE
    across.kill(1)
    across.machine(3).thaw()
    across.pass_time(3.0)
    across.start(1)
    across.world.wait(lambda: txn.state == "CompleteCommit", 30.0, lambda: "the end")
    assert committed(across) == [[b"a"], [b"b"], [b"c"]]
    write(txn, b"d", b"e", b"f")
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


def mark(across: Across, txn: Txn, broker_id: int, *, epoch: int, version: int, commit: bool) -> int:
    """The marker that doesn't get through from the coordinator, as its leader would have got it."""
    marker = {
        "producer_id": txn.id,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": "tide", "partition_indexes": [1]}],
        "coordinator_epoch": 0,
        "transaction_version": version,
    }
    answer = across.ask_at(broker_id, ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [marker]})
    return answer.markers[0].topics[0].partitions[0].error_code


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
    write(txn, b"a", b"b", b"c")
    assert txn.abort() == ErrorCode.NONE
    if versions is CLASSIC:
        assert txn.add("tide", 1) == ErrorCode.NONE
    held_word(across)
    late = across.send_at(2, ApiKey.PRODUCE, versions["produce"], produce(txn, b"late"))
    across.pass_time(0.2)
    epoch = txn.epoch
    assert txn.end(commit=commit) == ErrorCode.NONE
    assert not late.done
    second = versions is SECOND
    assert mark(across, txn, 2, epoch=epoch + second, version=2 * second, commit=commit) == ErrorCode.NONE
    across.world.network.heal_all()
    assert code(across.answer(late)) == ErrorCode.INVALID_TXN_STATE
    across.world.wait(lambda: txn.state.startswith("Complete"), 30.0, lambda: "the end")
    nothing_hangs(across)
    assert read_all(across, "tide", 1) == [b"b"]
    write(txn, b"d", b"e", b"f")  # and the next one isn't bothered
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
    assert [one.error_code for one in told] == [ErrorCode.INVALID_TXN_STATE] * 2
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
