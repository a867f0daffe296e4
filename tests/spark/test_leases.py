"""What a killed query left is aborted when its lease is over; what is decided never is, and a live task renews."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

import pyarrow

from tests.compat.members import until
from tests.spark.writing import TWO_PHASE, Killed, Query, dying_at
from tidelog.rpc import Cluster
from tidelog.rpc.transactions import describe_open
from tidelog.spark.sink import decisions as module
from tidelog.spark.sink import lease_renewal
from tidelog.spark.sink.decisions import Aborted
from tidelog.spark.sink.producers import Producers
from tidelog.testing import Broker

arrow: Any = pyarrow
pytestmark = pytest.mark.usefixtures("own_connections")
LEASE_MS = 1500


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {**TWO_PHASE, "tidelog.transaction.lease.ms": LEASE_MS}
    with Broker(settings, offsets_topic_num_partitions=2) as broker:
        yield broker


@pytest.fixture
def query(broker: Broker) -> Query:
    return Query(broker.bootstrap)


def test_what_a_killed_query_left_is_aborted_and_its_driver_repeats_the_batch(query: Query) -> None:
    first, second = query.task(0, b"a"), query.task(0, b"b")
    assert len(query.open()) == 2
    until(lambda: not query.open(), "the leases are over")
    with pytest.raises(Aborted, match=r"\(2 of 2 transactions, as tidelog-spark-.*nobody had renewed their leases"):
        query.commit(0, first, second)  # a driver that slept
    query.commit(0, query.task(0, b"a", b"b", run="next"))
    assert query.seen() == [b"a", b"b"]


@pytest.mark.parametrize("ended", [1, 2, 3])
def test_what_is_decided_outlives_every_lease(query: Query, monkeypatch: pytest.MonkeyPatch, ended: int) -> None:
    """Also where some transactions of the batch are committed and others are not."""
    written = [query.task(0, value) for value in (b"a", b"b", b"c")]
    with monkeypatch.context() as patch:
        patch.setattr(module, "end_transaction", dying_at(module.end_transaction, ended))
        with pytest.raises(Killed):
            query.commit(0, *written)
    left = 4 - ended
    other = Query(query.bootstrap)
    other.task(0, b"undecided")
    until(lambda: not other.open(), "a lease that began later is over")
    assert len(query.open()) == left
    query.commit(0, query.task(0, b"a", b"b", b"c", run="next"))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


def test_a_task_that_writes_for_long_renews_all_of_its_run(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_renewal, "RENEW_S", 0.3)
    done = query.task(0, b"a")  # waits for its batch meanwhile
    with Cluster(query.bootstrap) as cluster:

        def slow() -> Iterator[Any]:
            yield arrow.record_batch({"key": [b"k"], "value": [b"b" * 600_000]})
            yield arrow.record_batch({"key": [b"k"], "value": [b"b" * 600_000]})  # by now the first is sent
            lapsed = Query(query.bootstrap)
            for _ in range(2):  # each takes as long as a lease
                lapsed.task(0, b"nobody's")
                until(lambda: not lapsed.open(), "nobody's lease is over")
            transactions = describe_open(cluster, lambda name: f"-{query.sink}-task-" in name)
            assert [each.leased for each in transactions] == [True, True]
            yield arrow.record_batch({"key": [b"k"], "value": [b"c"]})

        late = query.write(0, slow(), worker=Producers())
    query.commit(0, done, late)
    assert [value[:1] for value in query.seen()] == [b"a", b"b", b"b", b"c"]


def test_a_task_that_waits_for_its_first_row_renews_all_of_its_run(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that take long to compute, or to come: those of other tasks wait for them meanwhile."""
    monkeypatch.setattr(lease_renewal, "RENEW_S", 0.3)
    done = query.task(0, b"a")

    def slow() -> Iterator[Any]:
        lapsed = Query(query.bootstrap)
        for _ in range(2):  # each takes as long as a lease
            lapsed.task(0, b"nobody's")
            until(lambda: not lapsed.open(), "nobody's lease is over")
        assert len(query.open()) == 1
        yield arrow.record_batch({"value": [b"b"]})

    query.commit(0, done, query.write(0, slow(), worker=Producers()))
    assert query.seen() == [b"a", b"b"]


def test_a_task_that_is_done_renews_no_more(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_renewal, "RENEW_S", 0.1)
    query.task(0, b"a")
    until(lambda: not query.open(), "the lease is over")
    assert not [thread for thread in threading.enumerate() if thread.name == lease_renewal.NAME]


def test_renewing_goes_on_after_a_request_that_failed(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_renewal, "RENEW_S", 0.2)
    real = lease_renewal.renew
    calls: list[object] = []

    def failing(*args: Any) -> Any:
        calls.append(args)
        if len(calls) < 3:
            raise OSError("no way to the broker")
        return real(*args)

    monkeypatch.setattr(lease_renewal, "renew", failing)

    def slow() -> Iterator[Any]:
        yield arrow.record_batch({"value": [b"a"]})
        until(lambda: len(calls) > 4, "it is tried again")

    query.commit(0, query.write(0, slow(), worker=Producers()))
    assert query.seen() == [b"a"]
