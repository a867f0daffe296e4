"""The exactly-once sink without Spark: tasks and drivers as functions, stopped between any two steps."""

import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

import confluent_kafka
import pyarrow

from tests.spark.writing import TWO_PHASE, Killed, Query, dying_at, own
from tidelog.client import Admin, read
from tidelog.client.transactions import Transactions
from tidelog.rpc import Cluster
from tidelog.rpc.groups import commit_offsets
from tidelog.rpc.produce import produce
from tidelog.rpc.transactions import describe, end_transaction
from tidelog.spark.sink import decisions as module
from tidelog.spark.sink import sink_progress
from tidelog.spark.sink.abort_run import end_run
from tidelog.spark.sink.data_sink import TopicWriter, Written, settle, write_rows
from tidelog.spark.sink.decisions import Aborted, Decisions, Replaced, RolledBack
from tidelog.spark.sink.lease_renewal import Renewal
from tidelog.spark.sink.producers import EPOCHS_MAX, Attempt, Owner, Producers, driver_id, owner_of, task_id
from tidelog.spark.sink.sink_name import group_of
from tidelog.spark.sink.sink_options import read_sink_options
from tidelog.testing import Broker
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

arrow: Any = pyarrow
pytestmark = pytest.mark.usefixtures("own_connections")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {**TWO_PHASE, "transaction.max.timeout.ms": 20_000, "log.cleaner.backoff.ms": 100}
    with Broker(settings, offsets_topic_num_partitions=2) as broker:
        yield broker


@pytest.fixture
def query(broker: Broker) -> Query:
    return Query(broker.bootstrap)


def test_nothing_is_seen_before_the_commit_and_everything_after(query: Query) -> None:
    first, second = query.task(0, b"a", b"b"), query.task(0, b"c")
    assert len(query.open()) == 2
    query.commit(0, first, second)
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


def test_a_repeated_batch_is_the_recorded_one(query: Query) -> None:
    query.commit(0, query.task(0, b"a"), query.task(0, b"b"))
    query.commit(0, query.task(0, b"a", b"b"))  # other partitions, the same rows
    query.commit(1, query.task(1, b"c"))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


def test_attempts_that_lost_are_swept(query: Query) -> None:
    query.task(0, b"a")  # an attempt whose end never reached the driver
    query.commit(0, query.task(0, b"a"))
    assert (query.seen(), query.open()) == ([b"a"], [])


def test_ids_are_used_again_for_later_batches_only(query: Query) -> None:
    for batch in range(5):
        query.commit(batch, query.task(batch, b"%d" % batch), query.task(batch, b"again"))
    assert len(query.ids()) == 2
    query.task(4, b"late")  # for a batch that is decided: dropped before anything is written
    query.commit(5, query.task(5, b"5"))
    query.task(6, b"lost")  # an attempt whose end never reached the driver
    query.commit(6, query.task(6, b"6"))
    assert len(query.ids()) == 2
    assert (query.seen(), query.open()) == ([b"0", b"1", b"2", b"3", b"4", b"5", b"6", *[b"again"] * 5], [])


def test_an_id_that_is_still_open_is_not_taken_again(query: Query) -> None:
    query.task(0, b"a")
    later = query.task(1, b"b")  # a driver that went on without ending the first
    assert len(query.open()) == 2
    query.commit(1, later)
    assert (query.seen(), query.open()) == ([b"b"], [])


def test_an_id_that_an_operator_aborted_is_not_taken_again(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    [name] = query.ids()
    with Transactions(query.bootstrap) as transactions:
        transactions.abort(name)  # it has a timeout now, by which a batch that is decided could be aborted
    query.commit(1, query.task(1, b"b"))
    assert (len(query.ids()), query.seen()) == (2, [b"a", b"b"])


def test_ids_that_are_used_up_are_replaced(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.spark.sink.producers.EPOCHS_MAX", 3)
    monkeypatch.setattr(module, "EPOCHS_MAX", 3)
    for batch in range(8):
        query.commit(batch, query.task(batch, b"%d" % batch))
    assert (len(query.ids()), query.open()) == (3, [])  # each for three batches
    assert query.seen() == [b"%d" % batch for batch in range(8)]


def test_two_processes_never_share_an_id(query: Query) -> None:
    first, second = query.task(0, b"a"), query.task(0, b"b", worker=Producers())
    query.commit(0, first, second)
    assert (len(query.ids()), query.seen()) == (2, [b"a", b"b"])


@pytest.mark.parametrize("sink", ["job-a", "job-a-task-b", "2f8a-1", "job-x-driver"])
def test_whose_an_id_is_can_be_told(sink: str) -> None:
    for writer in ("", "ba9876543210"):
        owner = Owner(sink, "5b1e7f1e-0000-4000-8000-000000000001", writer)
        assert owner_of(task_id(owner, "0123456789ab", 7)) == owner
    assert owner_of(f"tidelog-spark-{sink}-driver") is None or "-task-" in sink


FOREIGN = (
    "tidelog-spark-x-task-nodash",
    "tidelog-spark-x-task-",
    "tidelog-spark-x-task-a-b",
    "tidelog-spark-x-task-run-worker-1",
    "tidelog-spark-x-task-run-0123456789ab-",
    "tidelog-spark-x-task-run-0123456789ab-1x",
    "tidelog-spark-x-task-run-0123456789ab-1\n",
    "tidelog-spark--task-run-0123456789ab-1",
    "x-task-run-0123456789ab-1",
)


@pytest.mark.parametrize("name", FOREIGN)
def test_an_id_that_no_task_made_is_nobodys(name: str) -> None:
    assert owner_of(name) is None


def test_ids_of_others_that_look_almost_alike_hold_no_sink_up(query: Query) -> None:
    """Also not what looks for leases to renew, for what a stopped run left, or aborts."""
    Admin(query.bootstrap).create_topic("of-others", 1)
    names = ("tidelog-spark-x-task-nodash", f"tidelog-spark-{query.sink}-task-run", "tidelog-spark-job:x-task-a-b-c")
    given = {"bootstrap.servers": query.bootstrap, "transaction.timeout.ms": 20_000}
    others = [confluent_kafka.Producer({**given, "transactional.id": name}) for name in names]
    for each in others:
        each.init_transactions(10)
        each.begin_transaction()
        each.produce("of-others", b"x")
        assert each.flush(10) == 0
    query.commit(0, query.task(0, b"a"))
    query.abort(1, query.task(1, b"b"))
    assert end_run(query.options, "run") == 0
    with Cluster(query.bootstrap) as cluster:
        assert Renewal(query.options, Attempt(query.sink, "run", 2)).renew(cluster) == 0
    for each in others:
        each.commit_transaction(10)
    kept = read(query.bootstrap, "of-others", stop_at_end=True, isolation_level="read_committed")
    assert (query.seen(), query.open(), len(list(kept))) == ([b"a"], [], len(names))


def test_a_task_that_ends_after_its_batch_was_decided_aborts_itself(query: Query) -> None:
    def slow() -> Iterator[Any]:
        yield arrow.record_batch({"value": [b"a"]})
        query.commit(0, query.task(0, b"a"))  # another attempt of it won, and the driver has swept

    late = query.write(0, slow(), worker=Producers())
    assert (late.producer, query.seen(), query.open()) == (None, [b"a"], [])


def test_a_task_that_ends_after_its_batch_was_aborted_aborts_itself(query: Query) -> None:
    def slow() -> Iterator[Any]:
        yield arrow.record_batch({"value": [b"a"]})
        query.abort(0, query.task(0, b"a"))  # another task of the batch failed

    late = query.write(0, slow(), worker=Producers())
    assert (late.producer, query.seen(), query.open()) == (None, [], [])


def test_a_late_attempt_that_is_killed_is_swept_by_the_next_commit(query: Query) -> None:
    def killed() -> Iterator[Any]:
        yield arrow.record_batch({"value": [b"x" * 600_000]})
        query.commit(0, query.task(0, b"a"))
        yield arrow.record_batch({"value": [b"x" * 600_000]})
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelog.spark.sink.data_sink._abandon", lambda *_: None)
        with pytest.raises(Killed):
            query.write(0, killed(), worker=Producers())
    query.commit(1, query.task(1, b"b"))
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_an_attempt_that_is_swept_while_it_writes_says_so(query: Query) -> None:
    large = arrow.record_batch({"key": [b"k"], "value": [b"x" * 600_000]})

    def swept() -> Iterator[Any]:
        yield large
        yield large  # by now the first is sent
        query.commit(0, query.task(0, b"a"))
        query.commit(1, query.task(1, b"b"))
        yield large

    with pytest.raises(Replaced, match="was aborted while it was writing: the batch was decided without it"):
        query.write(0, swept(), worker=Producers())
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_a_new_run_sweeps_what_the_old_one_left(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    query.task(1, b"b")
    query.commit(1, query.task(1, b"b", run="next", worker=Producers()))
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_a_run_whose_open_transactions_were_swept_decides_nothing(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    swept = query.task(1, b"b")
    query.commit(1, query.task(1, b"b", run="next", worker=Producers()))
    with pytest.raises(Replaced, match="took over while batch 2 was being written"):
        query.commit(2, swept)
    query.commit(2, query.task(2, b"c", run="next", worker=Producers()))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


def test_a_run_that_slept_leaves_alone_what_another_has_open_for_a_later_batch(query: Query) -> None:
    asleep = query.task(0, b"a")
    query.commit(0, query.task(0, b"a", run="next", worker=Producers()))
    later = query.task(1, b"b", run="next", worker=Producers())
    with pytest.raises(Replaced):
        query.commit(0, asleep)
    query.commit(1, later)
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_a_decision_outlives_the_offset_that_says_where_it_is(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    query.commit(1, query.task(1, b"b"))
    query.forget()
    query.commit(1, query.task(1, b"b", run="next", worker=Producers()))
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_a_decision_outlives_the_offset_that_says_where_it_is_and_a_batch_that_fails_then(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    query.forget()
    query.abort(1, query.task(1, b"b"))
    query.commit(0, query.task(0, b"a", run="next", worker=Producers()))
    assert (query.seen(), query.open()) == ([b"a"], [])


@pytest.mark.long
def test_a_decision_outlives_compaction(broker: Broker) -> None:
    name = "compacted-decisions"
    configs = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
    Admin(broker.bootstrap).create_topic(name, 1, configs=configs)
    one, other = (Query(broker.bootstrap, decisionsTopic=name) for _ in range(2))
    one.commit(0, one.task(0, b"a"))
    deadline, batch = time.monotonic() + 60, 0
    while len(list(read(broker.bootstrap, name, stop_at_end=True))) >= batch or batch < 10:
        assert time.monotonic() < deadline, "nothing is compacted"
        other.commit(batch, other.task(batch, b"%d" % batch))
        batch += 1
    one.forget()
    one.commit(0, one.task(0, b"a", run="next"))
    one.commit(1, one.task(1, b"b", run="next"))
    assert (one.seen(), one.open()) == ([b"a", b"b"], [])


def test_a_batch_without_rows_is_nothing_to_decide_but_takes_over(query: Query) -> None:
    query.task(0, b"a", run="killed", worker=Producers())
    query.commit(0, Written(Attempt(query.sink, "run", 0), None, None, 0))
    assert query.open() == []
    query.commit(1, Written(Attempt(query.sink, "run", 1), None, None, 0))
    query.commit(1, query.task(1, b"b"))
    assert query.seen() == [b"b"]


def test_a_checkpoint_that_went_back_is_an_error(query: Query) -> None:
    query.commit(5, query.task(5, b"a"))
    with pytest.raises(RolledBack, match="batch 3 was to be written, but batch 5 of this query is committed already"):
        query.commit(3, query.task(3, b"b"))


def test_a_checkpoint_that_went_back_does_not_disturb_the_query_that_goes_on(query: Query) -> None:
    query.commit(5, query.task(5, b"a"))
    going_on, old = query.task(6, b"b"), query.task(3, b"c", run="old", worker=Producers())
    with pytest.raises(RolledBack):
        query.commit(3, old)
    query.abort(3, old)  # as Spark does then
    query.commit(6, going_on)
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_a_run_that_fails_in_a_batch_that_another_has_decided_does_not_disturb_that_one(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    going_on = query.task(1, b"b")
    query.abort(0, Written(Attempt(query.sink, "old", 0), None, None, 0))  # none of its tasks wrote anything
    query.commit(1, going_on)
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_a_run_that_fails_after_another_took_over_does_not_disturb_that_one(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    replaced = query.task(1, b"b")
    query.commit(0, query.task(0, b"a", run="next", worker=Producers()))
    going_on = query.task(1, b"b", run="next", worker=Producers())
    query.abort(1, replaced)
    query.commit(1, going_on)
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_a_failed_batch_is_aborted(query: Query) -> None:
    query.task(0, b"a")  # of a task that was killed
    query.abort(0, query.task(0, b"a"))
    assert query.open() == []
    query.commit(0, query.task(0, b"b"))
    assert query.seen() == [b"b"]


def test_what_is_decided_is_not_aborted_though_the_commit_failed(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = query.task(0, b"a"), query.task(0, b"b")
    with monkeypatch.context() as patch:
        patch.setattr(module, "end_transaction", dying_at(module.end_transaction, 1))
        with pytest.raises(Killed):
            query.commit(0, first, second)
    query.abort(0, first, second)
    assert (query.seen(), query.open()) == ([b"a", b"b"], []), "and readers need not wait for its repetition"
    query.commit(0, query.task(0, b"a", b"b", run="next"))
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_an_abort_ends_what_a_killed_driver_was_deciding_and_does_not_wait_for_it(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that one wrote is open until its time is over, and whoever asks for what is stable waits as long."""
    written = query.task(0, b"a")
    with Cluster(query.bootstrap) as cluster:
        killed, other = (Decisions(cluster, query.sink, "run", query.options.decisions) for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(module, "end_transaction", dying_at(module.end_transaction, 0))
            with pytest.raises(Killed):
                killed.commit(0, written.term, own(written))
        real, fence, fenced = sink_progress.committed_offset, module.init_producer, list[Any]()

        def looks(*args: Any, stable: bool) -> Any:
            assert fenced or not stable, "it waits for who was killed"
            return real(*args, stable=stable)

        def fences(*args: Any, **named: Any) -> Any:
            fenced.append(named)
            return fence(*args, **named)

        monkeypatch.setattr(sink_progress, "committed_offset", looks)
        monkeypatch.setattr(module, "init_producer", fences)
        other.abort(0, written.term, own(written))
    assert (query.seen(), query.open()) == ([], [])


@pytest.mark.parametrize("decided", [0, 4])
def test_a_commit_that_goes_on_after_its_batch_was_aborted_decides_nothing(
    query: Query, monkeypatch: pytest.MonkeyPatch, decided: int
) -> None:
    for batch in range(decided):
        query.commit(batch, query.task(batch, b"%d" % batch))
    before = query.seen()
    written, real = query.task(decided, b"a"), module.produce

    def aborted_meanwhile(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(module, "produce", real)
        query.abort(decided, written)  # Spark gave up on the process that commits
        return real(*args, **named)

    monkeypatch.setattr(module, "produce", aborted_meanwhile)
    with pytest.raises(Replaced):
        query.commit(decided, written)
    assert (query.seen(), query.open()) == (before, [])
    query.commit(decided, query.task(decided, b"a"))
    assert (query.seen(), query.open()) == ([*before, b"a"], [])


@pytest.mark.parametrize("run", ["run", "next"])
def test_a_decided_batch_that_nobody_repeats_is_ended_by_the_next(
    query: Query, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    first, second = query.task(0, b"a"), query.task(0, b"b")
    with monkeypatch.context() as patch:
        patch.setattr(module, "end_transaction", dying_at(module.end_transaction, 2))
        with pytest.raises(Killed):
            query.commit(0, first, second)  # the second is decided, and still open
    query.commit(1, query.task(1, b"c", run=run, worker=Producers()))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


def test_a_driver_that_takes_over_sees_a_decision_that_the_group_shows_only_to_who_waits_for_it(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator may have the marker and not have applied it yet: whoever doesn't wait sees what was before."""
    query.commit(0, query.task(0, b"a"))
    real = sink_progress.committed_offset
    with Cluster(query.bootstrap) as cluster:
        former = real(cluster, group_of(query.sink), (query.options.decisions, 0), stable=True)
    first, second = query.task(1, b"b"), query.task(1, b"c")
    with monkeypatch.context() as patch:
        patch.setattr(module, "end_transaction", dying_at(module.end_transaction, 2))
        with pytest.raises(Killed):
            query.commit(1, first, second)  # the second is decided, and still open
    again = query.task(1, b"b", b"c", run="next")

    def late(*args: Any, stable: bool) -> Any:
        return real(*args, stable=True) if stable else former

    with monkeypatch.context() as patch:
        patch.setattr(sink_progress, "committed_offset", late)
        query.commit(1, again)
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


def test_an_attempt_that_begins_after_its_batch_was_decided_knows_that(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the coordinator hadn't applied the decision's marker yet when it was written."""
    real, applied = sink_progress.committed_offset, list[Any]((None,))

    def late(*args: Any, stable: bool) -> Any:
        """Who doesn't wait sees what the last one saw who did."""
        if stable:
            applied.append(real(*args, stable=True))
        return applied[-1]

    monkeypatch.setattr(sink_progress, "committed_offset", late)
    query.commit(0, query.task(0, b"a"))
    assert query.task(0, b"a", worker=Producers()).producer is None
    assert (query.seen(), query.open()) == ([b"a"], [])


def test_what_an_operator_aborted_after_the_decision_is_told(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    written = query.task(0, b"a")
    with monkeypatch.context() as patch:
        patch.setattr(module, "end_transaction", dying_at(module.end_transaction, 1))
        with pytest.raises(Killed):
            query.commit(0, written)
    with Transactions(query.bootstrap) as transactions:
        transactions.abort(query.open()[0])
    with pytest.raises(
        KafkaError, match=r"is decided, but its transaction .* can't be committed: it was aborted by hand"
    ):
        query.commit(0, query.task(0, b"a", run="next"))


def test_a_driver_that_was_replaced_can_decide_nothing(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    with Cluster(query.bootstrap) as cluster:
        old, new = (Decisions(cluster, query.sink, run, query.options.decisions) for run in ("run", "next"))
        assert old.commit(1, 1, own(query.task(1, b"b")))
        mine = query.task(2, b"c")
        assert new.commit(2, 1, own(query.task(2, b"c", run="next", worker=Producers())))
        with pytest.raises(Replaced):
            old.commit(2, mine.term, own(mine))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


def test_a_decision_of_which_nobody_knows_where_it_stands_is_none(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = query.task(0, b"a")
    with monkeypatch.context() as patch:
        patch.setattr(module, "produce", lambda *args, **named: min(produce(*args, **named), -1))
        with pytest.raises(KafkaError, match="it was not told where the decision stands"):
            query.commit(0, written)
    query.commit(0, written)
    assert (query.seen(), query.open()) == ([b"a"], [])


def test_a_driver_that_was_only_fenced_goes_on(query: Query) -> None:
    with Cluster(query.bootstrap) as cluster:
        driver = Decisions(cluster, query.sink, "run", query.options.decisions)
        assert driver.commit(0, 0, own(query.task(0, b"a")))
        module.init_producer(cluster, module.driver_id(query.sink), timeout_ms=1000)  # another driver, killed then
        assert driver.commit(1, 1, own(query.task(1, b"b")))
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_a_driver_goes_on_over_other_connections(query: Query) -> None:
    with Cluster(query.bootstrap) as first:
        driver = Decisions(first, query.sink, "run", query.options.decisions)
        assert driver.commit(0, 0, own(query.task(0, b"a")))
    with Cluster(query.bootstrap) as second:
        assert driver.use(second).commit(1, 1, own(query.task(1, b"b")))
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_what_is_aborted_before_its_batch_is_decided_is_told_and_the_batch_repeated(query: Query) -> None:
    kept, lost = query.task(0, b"a"), query.task(0, b"b")
    with Transactions(query.bootstrap) as transactions:
        transactions.abort(lost.producer.transactional_id if lost.producer else "")
    with pytest.raises(Aborted, match=r"was aborted before the batch was decided \(1 of 2 transactions, as .*repeated"):
        query.commit(0, kept, lost)
    query.abort(0, kept, lost)
    assert (query.seen(), query.open()) == ([], [])
    query.commit(0, query.task(0, b"a", b"b"))
    assert query.seen() == [b"a", b"b"]


STEPS = {
    module: (
        "init_producer",
        "describe_all",
        "prepare",
        "produce",
        "commit_offsets_in",
        "end_transaction",
        "open_transactions",
        "abort_exactly",
    ),
    sink_progress: ("committed_offset",),
}


def at_each_step(patch: pytest.MonkeyPatch, step: Any) -> None:
    """From here on `step(real, *args)` is called instead of `real(*args)`."""
    for place, names in STEPS.items():
        for name in names:
            patch.setattr(place, name, partial(step, getattr(place, name)))


TASKS = 4  # steps of the tasks, which ask how far the sink is before and after they write


@pytest.mark.parametrize("call", range(TASKS, 18))
def test_a_driver_killed_between_any_two_steps_repeats_the_batch(
    query: Query, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    query.commit(0, query.task(0, b"zero"))
    killed = False
    with monkeypatch.context() as patch:
        at_each_step(patch, dying_at(lambda real, *args, **named: real(*args, **named), call))
        try:
            first, second = (query.task(1, value, run="second", worker=Producers()) for value in (b"a", b"b"))
            query.commit(1, first, second)
        except Killed:
            killed = True
    assert killed, "there are fewer steps than that"
    query.commit(1, query.task(1, b"a", b"b", run="third"))  # Spark repeats what it doesn't know to be done
    query.commit(2, query.task(2, b"c", run="third"))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c", b"zero"], [])


@pytest.mark.long
@pytest.mark.parametrize("call", range(TASKS, 18))
def test_the_broker_is_killed_between_any_two_steps(
    broker: Broker, query: Query, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    query.commit(0, query.task(0, b"zero"))
    steps = count()

    def broken(real: Any, *args: Any, **named: Any) -> Any:
        if next(steps) == call:
            broker.kill()
            broker.start()
        return real(*args, **named)

    at_each_step(monkeypatch, broken)
    first, second = (query.task(1, value, run="second", worker=Producers()) for value in (b"a", b"b"))
    query.commit(1, first, second)
    assert next(steps) > call, "there are fewer steps than that"
    query.commit(2, query.task(2, b"c", run="second"))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c", b"zero"], [])


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_query_outlives_the_epochs_of_its_ids(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    with Broker(TWO_PHASE, offsets_topic_num_partitions=2) as broker, Cluster(broker.bootstrap) as cluster:
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=2)
        request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update])
        assert not cluster.any().ask(request, UpdateFeaturesResponse).error_code
        query = Query(broker.bootstrap)
        query.commit(0, query.task(0, b"0"))
        [name] = query.ids()
        for each, epoch in ((name, EPOCHS_MAX - 3), (driver_id(query.sink), 32_750)):
            described = describe(cluster, each)
            assert described is not None
            producer = described.producer
            while producer.epoch < epoch:
                producer = end_transaction(cluster, producer, commit=False)
        renewed, batch = 0, 1
        while renewed < 2:  # until the driver got another producer id
            written = query.task(batch, b"%d" % batch)
            with monkeypatch.context() as patch:  # each batch is decided by one driver, and ended by another
                patch.setattr(module, "end_transaction", dying_at(module.end_transaction, 1))
                with pytest.raises(Killed):
                    query.commit(batch, written)
            query.commit(batch, query.task(batch, b"%d" % batch, run=f"run-{batch}", worker=Producers()))
            batch += 1
            described = describe(cluster, driver_id(query.sink))
            assert described is not None
            renewed += described.producer.epoch < 100
        assert query.seen() == sorted(b"%d" % each for each in range(batch))
        assert (query.open(), len(query.ids()) > 1) == ([], True)


def test_ending_again_what_was_committed_is_harmless(query: Query) -> None:
    written = query.task(0, b"a")
    query.commit(0, written)
    assert written.producer is not None
    with Cluster(query.bootstrap) as cluster:
        end_transaction(cluster, written.producer, commit=True)
    assert query.seen() == [b"a"]


def test_a_job_writes_once_under_its_id(query: Query) -> None:
    given = {"kafka.bootstrap.servers": query.bootstrap, "topic": query.topic, "jobId": query.sink}
    options = read_sink_options(given, streaming=False)
    for _ in range(2):
        table = arrow.record_batch({"value": [b"a", b"b"]})
        written = write_rows(options, Attempt(f"job-{query.sink}", "run", 0), iter([table]))
        settle(options, 0, [written], commit=True)
    assert query.seen() == [b"a", b"b"]


def test_a_job_of_which_no_task_came_to_its_end_leaves_nothing_open(query: Query) -> None:
    given = {"kafka.bootstrap.servers": query.bootstrap, "topic": query.topic, "jobId": query.sink}
    writer = TopicWriter(read_sink_options(given, streaming=False))
    writer.write(iter([arrow.record_batch({"value": [b"a"]})]))  # of a task that was killed before it could report
    assert len(query.open()) == 1
    writer.abort([None, None])
    assert (query.seen(), query.open()) == ([], [])


def test_an_offset_that_somebody_set_by_hand_is_told(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    with Cluster(query.bootstrap) as cluster:
        commit_offsets(cluster, group_of(query.sink), {(query.options.decisions, 0): 7})
    with pytest.raises(KafkaError, match=r"is not one that a sink wrote: was it set by hand"):
        query.task(1, b"b")


def test_ids_that_coordinators_forgot_are_not_asked_for_again(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.commit(0, *(query.task(0, b"a") for _ in range(3)))
    asked: list[str] = []

    def forgotten(cluster: Cluster, name: str) -> None:
        asked.append(name)

    with monkeypatch.context() as patch:
        patch.setattr("tidelog.spark.sink.producers.describe", forgotten)
        query.commit(1, query.task(1, b"b"))
        query.commit(2, query.task(2, b"c"))
    assert len(set(asked)) == len(asked) == 4
    query.commit(3, query.task(3, b"d"))
    assert len(query.ids()) == 5


def test_at_least_once_needs_no_decision(query: Query) -> None:
    given = {"kafka.bootstrap.servers": query.bootstrap, "topic": query.topic, "kafka.compression.type": "zstd"}
    options = read_sink_options(given, streaming=False)
    headers = [[{"key": "h", "value": b"1"}], None, []]
    table = arrow.record_batch({"value": ["a", None, "c"], "headers": headers, "partition": [1, 0, None]})
    assert write_rows(options, Attempt("", "", 0), iter([table])).producer is None
    found = sorted(read(query.bootstrap, query.topic, stop_at_end=True), key=lambda m: m.value or b"")
    assert [(m.value, m.headers) for m in found] == [(None, []), (b"a", [("h", b"1")]), (b"c", [])]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"value": [b"a"], "partition": [7]}, r"row 0 of this task names partition 7 of out-.*, which has 2"),
        (
            {"value": [b"x" * 11_000_000]},
            r"row 0 of this task has a key and value of 11000000 bytes, more than out-.* takes",
        ),
    ],
)
def test_a_row_that_cannot_be_written_is_named(query: Query, column: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        write_rows(query.options, Attempt(query.sink, "run", 0), iter([arrow.record_batch(column)]))
    assert query.open() == []


def test_a_topic_of_decisions_that_another_driver_makes_first_is_used(
    broker: Broker, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = module.create_topic

    def beaten(cluster: Cluster, *more: Any) -> None:
        make(cluster, *more)
        make(cluster, *more)

    monkeypatch.setattr(module, "create_topic", beaten)
    with Cluster(broker.bootstrap) as cluster:
        decisions = Decisions(cluster, query.sink, "run", f"{query.topic}-made-twice")
        assert decisions.commit(0, None, ())


def test_a_topic_of_decisions_that_can_not_be_made_is_told(
    broker: Broker, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)

    monkeypatch.setattr(module, "create_topic", refused)
    with Cluster(broker.bootstrap) as cluster, pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        Decisions(cluster, query.sink, "run", f"{query.topic}-never").commit(0, None, ())
