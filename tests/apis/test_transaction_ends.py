"""How transactions end: markers on the way, coordinators that die, ids that expire, and what an operator sees."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.apis.followers import change, register
from tests.apis.sim_broker import SimBroker
from tests.apis.test_transactions import begun, both
from tests.apis.txn import CLASSIC, SECOND, Txn, fetch, read_all, read_committed
from tidelog.coordinator.bounds import CLIENT_EPOCH_MAX, MARKER_RETRY_S, MARKER_RETRY_S_MAX
from tidelog.coordinator.txn import decide, ending, state
from tidelog.coordinator.txn.decide import NO_EPOCH, Producer
from tidelog.coordinator.txn.markers import Markers
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.keys import ApiKey


@pytest.fixture
def sim_broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("accounts", 3)
    return made


def test_whoever_comes_while_a_transaction_is_being_ended_waits_for_it(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    assert txn.sim_broker.ask(ApiKey.END_TXN, 3, txn.end_fields(commit=True)).error_code == 0
    sim_broker.hold_syncs()
    asked = sim_broker.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, txn.add_fields("accounts", 1))
    again = sim_broker.send(ApiKey.END_TXN, 3, txn.end_fields(commit=True))
    sim_broker.pass_time(0.5)
    assert not asked.done
    assert again.response.error_code == 0, "what was decided is told at once"
    sim_broker.let_sync()
    sim_broker.settle()
    assert asked.response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    assert txn.state == "Ongoing"


@pytest.mark.parametrize("last", [CLIENT_EPOCH_MAX, 1], ids=["the next epoch", "the next producer id"])
@pytest.mark.parametrize("wrote", [False, True], ids=["nothing", "something"])
def test_nobody_is_fenced_by_an_end_of_its_own_that_is_still_being_carried_out(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch, last: int, wrote: bool
) -> None:
    """The next transaction, in which something is written or nothing, comes as soon as the end is answered."""
    monkeypatch.setattr(decide, "CLIENT_EPOCH_MAX", last)
    monkeypatch.setattr(state, "CLIENT_EPOCH_MAX", last)
    txn = begun(sim_broker, SECOND)
    assert txn.abort() == 0
    assert txn.send("accounts", b"two") == 0
    ended = sim_broker.ask(ApiKey.END_TXN, 5, txn.end_fields(commit=True))
    assert (ended.producer_id == txn.id, ended.producer_epoch) == ((False, 0) if last == 1 else (True, 2))
    txn.id, txn.epoch = ended.producer_id, ended.producer_epoch
    txn.sequences.clear()
    sim_broker.hold_syncs()
    if wrote:
        fields = txn.produce_fields("accounts", txn.batch(b"three", sequence=0))
        asked = sim_broker.send(ApiKey.PRODUCE, 12, fields)
    else:
        asked = sim_broker.send(ApiKey.END_TXN, 5, txn.end_fields(commit=False))
    sim_broker.settle()
    assert not asked.done
    sim_broker.let_sync()
    sim_broker.settle()
    if wrote:
        assert asked.response.responses[0].partition_responses[0].error_code == 0
    else:
        assert asked.response.error_code == 0
        txn.id, txn.epoch = asked.response.producer_id, asked.response.producer_epoch
    assert txn.abort() == 0
    assert read_committed(sim_broker, "accounts") == [b"two"]


def test_nobody_waits_longer_than_a_second(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    assert txn.sim_broker.ask(ApiKey.END_TXN, 3, txn.end_fields(commit=True)).error_code == 0
    sim_broker.hold_syncs()
    asked = sim_broker.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, txn.add_fields("accounts", 1))
    sim_broker.pass_time(1.1)
    code = asked.response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    assert code == ErrorCode.CONCURRENT_TRANSACTIONS


@both
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("syncs", range(6))
def test_a_coordinator_that_dies_between_any_two_steps_finishes_after_its_load(
    sim_broker: SimBroker, versions: dict[str, int], commit: bool, syncs: int
) -> None:
    """Killed, with the power, after each sync in turn: the transaction ends whole or not at all."""
    txn = begun(sim_broker, versions)
    if versions is CLASSIC:
        assert txn.add("accounts", 1, 2) == 0
    assert txn.send("accounts", b"two", partition=1) == 0
    assert txn.send("accounts", b"three", partition=2) == 0
    sim_broker.hold_syncs()
    asked = sim_broker.send(ApiKey.END_TXN, txn.versions["end"], txn.end_fields(commit=commit))
    for _ in range(syncs):
        held, sim_broker.loop.held_work = sim_broker.loop.held_work or [], []
        for begin in held:
            begin()
        sim_broker.settle()
    answered = asked.done
    disk = sim_broker.kill()
    disk.crash()
    after = SimBroker(disk=disk)
    after.pass_time(2.0)  # everything is loaded
    later = Txn(after, versions=versions)
    states = {"CompleteCommit", "CompleteAbort", "Ongoing"}
    state = later.state
    assert state in states
    if answered:
        assert state == ("CompleteCommit" if commit else "CompleteAbort")
    if state == "Ongoing":
        assert later.init() == 0  # fences, and aborts
        after.settle()
    found = [read_committed(after, "accounts", index) for index in range(3)]
    whole = state == "CompleteCommit"
    assert found == ([[b"one"], [b"two"], [b"three"]] if whole else [[], [], []])
    for index in range(3):
        answer = fetch(after, "accounts", index)
        assert answer.last_stable_offset == answer.high_watermark


def test_a_transaction_goes_on_after_the_coordinator_died_between_joining_and_producing(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init()
    txn.add("accounts", 0)
    txn.sim_broker = after = SimBroker(disk=sim_broker.kill())
    assert txn.send("accounts", b"one") == 0
    assert txn.commit() == 0
    assert read_committed(after, "accounts") == [b"one"]


def test_a_timeout_counts_over_a_restart(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init(timeout_ms=30_000)
    txn.add("accounts", 0)
    txn.send("accounts", b"dead")
    after = SimBroker(disk=sim_broker.kill())
    after.pass_time(29.0)
    assert fetch(after, "accounts").last_stable_offset == 0
    after.pass_time(2.0)
    assert fetch(after, "accounts").last_stable_offset == 2
    assert read_committed(after, "accounts") == []


def test_a_timeout_that_became_shorter_counts(sim_broker: SimBroker) -> None:
    """The deadline of the transaction before, which ended long since, is not the one to wait for."""
    txn = Txn(sim_broker)
    txn.init(timeout_ms=600_000)
    txn.add("accounts", 0)
    txn.send("accounts", b"one")
    assert txn.commit() == 0
    txn.init(timeout_ms=1000)
    txn.add("accounts", 0)
    txn.send("accounts", b"dead")
    sim_broker.pass_time(2.0)
    assert txn.state == "CompleteAbort"
    assert fetch(sim_broker, "accounts").last_stable_offset == 4
    sim_broker.pass_time(700.0)  # the later deadline, which was watched before
    assert read_committed(sim_broker, "accounts") == [b"one"]


def test_a_deleted_topic_does_not_hold_up_the_end(sim_broker: SimBroker) -> None:
    sim_broker.make_topic("gone")
    txn = begun(sim_broker)
    txn.add("gone", 0)
    sim_broker.delete_topic("gone")
    assert txn.commit() == 0
    assert txn.state == "CompleteCommit"


def test_a_partition_that_cannot_be_written_is_tried_again(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    txn.add("accounts", 1)
    txn.send("accounts", b"two", partition=1)
    partition = sim_broker.partition("accounts", 1)
    leader, partition.leader = partition.leader, 9
    assert txn.commit() == 0
    sim_broker.pass_time(1.0)
    assert txn.state == "PrepareCommit"
    assert read_committed(sim_broker, "accounts", 0) == [b"one"]
    partition.leader = leader
    sim_broker.pass_time(5.0)
    assert txn.state == "CompleteCommit"
    assert read_committed(sim_broker, "accounts", 1) == [b"two"]


def test_a_partition_that_has_seen_a_later_epoch_does_not_hold_up_the_end(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    assert _write_marker(sim_broker, txn, epoch=txn.epoch + 5, commit=False) == 0
    assert txn.commit() == 0
    assert txn.state == "CompleteCommit"
    assert read_committed(sim_broker, "accounts") == []


def _write_marker(
    sim_broker: SimBroker, txn: Txn, *, epoch: int, commit: bool, coordinator_epoch: int = 0, version: int = 0
) -> int:
    marker = {
        "producer_id": txn.id,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": "accounts", "partition_indexes": [0]}],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": version,
    }
    answer = sim_broker.ask(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [marker]})
    return answer.markers[0].topics[0].partitions[0].error_code


def test_markers_of_the_past_are_refused(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker, SECOND)
    assert _write_marker(sim_broker, txn, epoch=-1, commit=True) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert _write_marker(sim_broker, txn, epoch=0, commit=True, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert _write_marker(sim_broker, txn, epoch=1, commit=False, version=2, coordinator_epoch=5) == 0
    assert _write_marker(sim_broker, txn, epoch=1, commit=False, version=2, coordinator_epoch=5) == 0, (
        "again ends nothing"
    )
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert _write_marker(sim_broker, txn, epoch=2, commit=False, version=2, coordinator_epoch=4) == fenced
    assert read_committed(sim_broker, "accounts") == []
    assert fetch(sim_broker, "accounts").last_stable_offset == 3


def test_markers_for_partitions_that_are_not_there(sim_broker: SimBroker) -> None:
    marker = {
        "producer_id": 1,
        "producer_epoch": 0,
        "topics": [{"name": "nowhere", "partition_indexes": [0]}, {"name": "accounts", "partition_indexes": [7]}],
    }
    answer = sim_broker.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})
    codes = [topic.partitions[0].error_code for topic in answer.markers[0].topics]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert sim_broker.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": []}).markers == []


def test_idle_ids_are_forgotten_and_used_ones_are_not() -> None:
    day_ms = 86_400_000
    sim_broker = SimBroker({"transactional.id.expiration.ms": str(day_ms)})
    sim_broker.make_topic("accounts")
    idle, used, open_ = Txn(sim_broker, "idle"), Txn(sim_broker, "used"), Txn(sim_broker, "open")
    idle.init()
    used.init()
    open_.init(timeout_ms=900_000)
    sim_broker.pass_time(20 * 3600.0)
    assert used.init() == 0
    sim_broker.pass_time(5.5 * 3600.0)
    assert idle.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert used.state == "Empty"
    assert idle.add("accounts") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert idle.init(resume=True) == 0
    again = SimBroker(disk=sim_broker.kill())
    assert Txn(again, "used").state == "Empty"


def test_nothing_is_remembered_of_ids_that_were_forgotten() -> None:
    sim_broker = SimBroker({"transactional.id.expiration.ms": "86400000", "transaction.state.log.num.partitions": "1"})
    sim_broker.make_topic("accounts")
    jobs = {name: begun(sim_broker, SECOND, name=name) for name in (f"job-{number}" for number in range(20))}
    assert {txn.commit() for txn in jobs.values()} == {0}
    live = sim_broker.services.transactions.shards.of("job-0").live

    def remembered() -> list[str]:
        return [name for name, txn in jobs.items() if live.last_epoch(name, Producer(txn.id, txn.epoch)) != NO_EPOCH]

    assert remembered() == list(jobs)
    sim_broker.pass_time(20 * 3600.0)
    jobs["job-3"] = begun(sim_broker, SECOND, name="job-3")
    assert jobs["job-3"].commit() == 0
    sim_broker.pass_time(5.5 * 3600.0)
    assert remembered() == ["job-3"]


def test_transactions_are_described(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    told = txn.describe()
    assert (told.error_code, told.transaction_state, told.transaction_timeout_ms) == (0, "Ongoing", 60_000)
    assert (told.producer_id, told.producer_epoch) == (txn.id, txn.epoch)
    assert [(topic.topic, topic.partitions) for topic in told.topics] == [("accounts", [0])]
    answer = sim_broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["nobody", ""]})
    codes = [one.error_code for one in answer.transaction_states]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST]


def test_transactions_are_listed_by_state_producer_duration_and_pattern(sim_broker: SimBroker) -> None:
    open_ = begun(sim_broker, name="pay-1")
    done = begun(sim_broker, name="pay-2")
    done.commit()
    Txn(sim_broker, "other").init()
    sim_broker.pass_time(2.0)

    def names(**filters: Any) -> set[str]:
        answer = sim_broker.ask(ApiKey.LIST_TRANSACTIONS, 2, filters)
        assert answer.error_code == 0
        return {one.transactional_id for one in answer.transaction_states}

    assert names() == {"pay-1", "pay-2", "other"}
    assert names(state_filters=["Ongoing"]) == {"pay-1"}
    assert names(state_filters=["Ongoing", "Empty"]) == {"pay-1", "other"}
    assert names(state_filters=["Dead"]) == set()
    assert names(producer_id_filters=[open_.id, 77]) == {"pay-1"}
    assert names(duration_filter=1000, state_filters=["Ongoing"]) == {"pay-1"}
    assert names(duration_filter=5000, state_filters=["Ongoing"]) == set()
    assert names(transactional_id_pattern="pay-.*") == {"pay-1", "pay-2"}
    assert names(transactional_id_pattern="pay") == set()
    answer = sim_broker.ask(ApiKey.LIST_TRANSACTIONS, 2, {"state_filters": ["Ongoing", "Confused"]})
    assert answer.unknown_state_filters == ["Confused"]
    bad = sim_broker.ask(ApiKey.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": "("})
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_producers_of_a_partition_are_described_with_their_transaction(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    asked = {"topics": [{"name": "accounts", "partition_indexes": [0]}]}
    look: Callable[[], Any] = lambda: (  # noqa: E731
        sim_broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0].active_producers[0]
    )
    told = look()
    assert (told.producer_id, told.producer_epoch, told.last_sequence) == (txn.id, txn.epoch, 0)
    assert (told.current_txn_start_offset, told.coordinator_epoch) == (0, -1)
    txn.commit()
    told = look()
    assert (told.current_txn_start_offset, told.coordinator_epoch) == (-1, 0)
    assert read_all(sim_broker, "accounts") == [b"one"]


def test_producers_are_described_by_a_follower_too(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    asked = {"topics": [{"name": "accounts", "partition_indexes": [0]}]}
    register(sim_broker, 2)
    change(sim_broker, "accounts", replicas=[1, 2], isr=[1, 2], leader=2)
    told = sim_broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0]
    assert told.error_code == 0
    assert [one.producer_id for one in told.active_producers] == [txn.id]
    change(sim_broker, "accounts", replicas=[2], isr=[2])
    told = sim_broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0]
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_end_that_was_committed_too_late_for_its_answer_is_carried_out(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    sim_broker.hold_syncs()
    asked = [sim_broker.send(ApiKey.END_TXN, 3, txn.end_fields(commit=True)) for _ in range(2)]
    sim_broker.pass_time(20.0)
    assert {each.response.error_code for each in asked} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    log = sim_broker.partition("accounts").log
    assert log.log_end == 1, "no marker, while what was decided may yet be lost"
    sim_broker.let_sync()
    sim_broker.pass_time(1.0)
    assert log.log_end == 2, "and one, however many asked"
    assert txn.state == "CompleteCommit"
    assert txn.commit() == 0, "asked again, it is told"
    assert read_committed(sim_broker, "accounts") == [b"one"]


def test_a_transaction_that_had_to_wait_for_the_one_before_times_out_too(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init(timeout_ms=3000)
    txn.add("accounts", 0)
    txn.send("accounts", b"one")
    assert sim_broker.ask(ApiKey.END_TXN, 3, txn.end_fields(commit=True)).error_code == 0
    sim_broker.hold_syncs()
    asked = sim_broker.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, txn.add_fields("accounts", 1))
    sim_broker.pass_time(0.1)
    assert not asked.done
    sim_broker.let_sync()
    sim_broker.settle()
    assert txn.send("accounts", b"dead", partition=1) == 0
    sim_broker.pass_time(3.2)
    assert txn.state == "CompleteAbort"
    assert fetch(sim_broker, "accounts", 1).last_stable_offset == 2


def test_a_leader_that_goes_while_requests_wait_sends_them_on(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    assert sim_broker.ask(ApiKey.END_TXN, 3, txn.end_fields(commit=True)).error_code == 0
    sim_broker.hold_syncs()
    asked = sim_broker.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, txn.add_fields("accounts", 1))
    sim_broker.pass_time(0.1)
    assert not asked.done
    log = sim_broker.partition("accounts").log
    written = log.log_end
    sim_broker.services.transactions.shards.close()
    sim_broker.settle()
    assert log.log_end == written, "and begins no end anew"
    code = asked.response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    assert code == ErrorCode.NOT_COORDINATOR


def test_a_marker_that_fails_when_the_leader_has_gone_is_left_to_the_next(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Promise[None]] = []

    def write(*_: object) -> Promise[None]:
        tried.append(Promise())
        return tried[-1]

    monkeypatch.setattr(Markers, "write", write)
    txn = begun(sim_broker)
    assert txn.commit() == 0
    sim_broker.services.transactions.shards.close()
    tried[0].fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    sim_broker.pass_time(60.0)
    assert len(tried) == 1


@pytest.mark.parametrize("syncs", range(4))
def test_a_leader_that_goes_while_it_ends_a_transaction_leaves_the_rest_to_the_next(
    sim_broker: SimBroker, caplog: pytest.LogCaptureFixture, syncs: int
) -> None:
    txn = begun(sim_broker)
    sim_broker.hold_syncs()
    sim_broker.send(ApiKey.END_TXN, 3, txn.end_fields(commit=True))
    for _ in range(syncs):
        held, sim_broker.loop.held_work = sim_broker.loop.held_work or [], []
        for begin in held:
            begin()
        sim_broker.settle()
    written = sim_broker.partition("accounts").log.log_end
    sim_broker.services.transactions.shards.close()
    sim_broker.let_sync()
    sim_broker.pass_time(5.0)
    assert sim_broker.partition("accounts").log.log_end == written, "it writes nothing any more"
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_leader_that_goes_between_two_markers_writes_no_more_of_them(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one writes all of them: what comes late from this one is only to be refused."""
    write, tried = Markers.write, []

    def leaves_after(markers: Markers, topic: str, index: int, *more: Any) -> Promise[None]:
        tried.append(index)
        written = write(markers, topic, index, *more)
        sim_broker.services.transactions.shards.close()
        return written

    txn = begun(sim_broker)
    txn.add("accounts", 1, 2)
    monkeypatch.setattr(ending, "AT_ONCE", 1)
    monkeypatch.setattr(Markers, "write", leaves_after)
    sim_broker.send(ApiKey.END_TXN, 3, txn.end_fields(commit=True))
    sim_broker.pass_time(60.0)
    assert tried == [0]


def test_a_leader_that_goes_before_it_carries_out_an_end_that_was_committed_late_leaves_it_to_the_next() -> None:
    sim_broker = SimBroker({"transaction.state.log.num.partitions": "1"})
    sim_broker.make_topic("accounts", 3)
    txn, other = begun(sim_broker), begun(sim_broker, name="other")
    log = sim_broker.partition("accounts").log
    written = log.log_end
    sim_broker.hold_syncs()
    asked = [sim_broker.send(ApiKey.END_TXN, 3, txn.end_fields(commit=True))]
    sim_broker.pass_time(20.0)
    assert asked[0].response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    sim_broker.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, other.add_fields("accounts", 1))
    asked.append(sim_broker.send(ApiKey.END_TXN, 3, txn.end_fields(commit=True)))  # waits for what is before it
    held, sim_broker.loop.held_work = sim_broker.loop.held_work or [], []
    for begin in held:
        begin()
    sim_broker.settle()
    assert (txn.state, asked[1].done) == ("PrepareCommit", False), "committed, and nobody was told"
    sim_broker.services.transactions.shards.close()
    sim_broker.pass_time(5.0)
    assert asked[1].response.error_code == ErrorCode.NOT_COORDINATOR
    assert log.log_end == written, "no marker"


def test_ids_expire_in_batches_no_larger_than_the_topic_allows() -> None:
    sim_broker = SimBroker({"message.max.bytes": "2000", "transaction.state.log.num.partitions": "1"})
    for number in range(50):
        assert Txn(sim_broker, name=f"{number}-" + "x" * 300).init() == 0
    sim_broker.pass_time(8 * 24 * 3600.0)
    answer = sim_broker.ask(ApiKey.LIST_TRANSACTIONS, 0, {"state_filters": [], "producer_id_filters": []})
    assert answer.transaction_states == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_topic_that_takes_no_batch_as_large_as_a_marker_gets_its_marker(sim_broker: SimBroker, commit: bool) -> None:
    """`max.message.bytes` is about what clients send: or else a transaction that was open when it fell never ends."""
    txn = Txn(sim_broker)
    assert txn.init() == 0
    assert txn.add("accounts") == 0
    assert txn.send("accounts", b"one") == 0
    config = {"name": "max.message.bytes", "config_operation": 0, "value": "50"}
    resource = {"resource_type": 2, "resource_name": "accounts", "configs": [config]}
    answer = sim_broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    assert answer.responses[0].error_code == 0
    assert txn.end(commit=commit) == 0
    sim_broker.pass_time(10.0)
    assert txn.state == ("CompleteCommit" if commit else "CompleteAbort")
    assert read_committed(sim_broker, "accounts") == ([b"one"] if commit else [])


def failing(monkeypatch: pytest.MonkeyPatch, sim_broker: SimBroker, error: Exception, times: int) -> list[float]:
    """The first markers that are to be written to a partition fail; when each was tried."""
    write, tried = Markers.write, []

    def fails(self: Markers, topic: str, index: int, marker: Any) -> Any:
        tried.append(sim_broker.timeline.now)
        if len(tried) <= times:
            raise error
        return write(self, topic, index, marker)

    monkeypatch.setattr(Markers, "write", fails)
    return tried


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        KafkaError(ErrorCode.KAFKA_STORAGE_ERROR),
        RuntimeError("a bug"),
    ],
    ids=["a topic that is there nevertheless", "no leader", "no disk", "anything else"],
)
def test_a_marker_is_tried_until_it_is_written(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    txn = begun(sim_broker)
    tried = failing(monkeypatch, sim_broker, error, 1)
    assert txn.commit() == 0
    assert (txn.state, read_committed(sim_broker, "accounts")) == ("PrepareCommit", [])
    sim_broker.pass_time(1.0)
    assert (txn.state, read_committed(sim_broker, "accounts"), len(tried)) == ("CompleteCommit", [b"one"], 2)


def test_the_time_between_tries_doubles_up_to_a_bound(sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    txn = begun(sim_broker)
    tried = failing(monkeypatch, sim_broker, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), 9)
    txn.commit()
    sim_broker.pass_time(60.0)
    waits = [round(after - before, 6) for before, after in pairwise(tried)]
    assert waits == [min(MARKER_RETRY_S * 2**n, MARKER_RETRY_S_MAX) for n in range(9)]
    assert txn.state == "CompleteCommit"


def test_a_marker_of_a_producer_whose_epoch_was_raised_is_not_needed_any_more(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = begun(sim_broker)
    tried = failing(monkeypatch, sim_broker, KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH), 1)
    assert txn.commit() == 0
    assert (txn.state, len(tried)) == ("CompleteCommit", 1)


def test_one_partition_that_takes_no_marker_keeps_the_others_from_nothing(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = begun(sim_broker)
    txn.add("accounts", 1, 2)
    txn.send("accounts", b"two", partition=1)
    tried = failing(monkeypatch, sim_broker, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), 1)
    assert txn.commit() == 0
    assert [read_committed(sim_broker, "accounts", index) for index in (0, 1)] == [[], [b"two"]]
    sim_broker.pass_time(1.0)
    assert [read_committed(sim_broker, "accounts", index) for index in (0, 1)] == [[b"one"], [b"two"]]
    assert len(tried) == 4, "three, and the first again"


def test_a_topic_that_was_deleted_meanwhile_needs_no_marker(sim_broker: SimBroker) -> None:
    sim_broker.make_topic("gone")
    txn = begun(sim_broker)
    txn.add("gone", 0)
    txn.send("gone", b"x")
    sim_broker.delete_topic("gone")
    assert txn.commit() == 0
    sim_broker.pass_time(1.0)
    assert (txn.state, read_committed(sim_broker, "accounts")) == ("CompleteCommit", [b"one"])


def test_every_partition_gets_its_marker_however_many_there_are(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "AT_ONCE", 2)
    txn = begun(sim_broker)
    txn.add("accounts", 1, 2)
    for partition in (1, 2):
        txn.send("accounts", b"%d" % partition, partition=partition)
    assert txn.commit() == 0
    assert [read_committed(sim_broker, "accounts", index) for index in range(3)] == [[b"one"], [b"1"], [b"2"]]


def test_no_marker_is_written_before_the_end_is_durable_and_none_twice(sim_broker: SimBroker) -> None:
    """Whoever comes meanwhile sees to it that it is carried out."""
    txn = begun(sim_broker)
    log = sim_broker.partition("accounts").log
    sim_broker.hold_syncs()
    asked = [sim_broker.send(ApiKey.END_TXN, 3, txn.end_fields(commit=True))]
    asked += [sim_broker.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, txn.add_fields("accounts", 1)) for _ in range(2)]
    fields = {"transactional_id": txn.name, "transaction_timeout_ms": 60_000}
    asked.append(sim_broker.send(ApiKey.INIT_PRODUCER_ID, 4, fields))
    sim_broker.pass_time(0.5)
    assert log.log_end == 1
    sim_broker.let_sync()
    sim_broker.pass_time(2.0)
    assert log.log_end == 2
    assert all(each.done for each in asked)
    assert read_committed(sim_broker, "accounts") == [b"one"]


def test_an_end_that_can_not_be_written_down_is_tried_until_it_is(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, tried = decide.complete, []

    def fails(*arguments: Any) -> Any:
        tried.append(sim_broker.timeline.now)
        if len(tried) <= 8:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return complete(*arguments)

    txn = begun(sim_broker)
    monkeypatch.setattr(decide, "complete", fails)
    txn.commit()
    assert (txn.state, read_committed(sim_broker, "accounts")) == ("PrepareCommit", [b"one"])
    sim_broker.pass_time(60.0)
    waits = [round(after - before, 6) for before, after in pairwise(tried)]
    assert waits == [min(MARKER_RETRY_S * 2**n, MARKER_RETRY_S_MAX) for n in range(8)]
    assert txn.state == "CompleteCommit"
    assert txn.add("accounts", 1) == 0, "the next one may begin"
