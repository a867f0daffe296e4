"""Who decides, without Spark: how a driver takes over, and what it tells those of an earlier version."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tests.spark.writing import TWO_PHASE, Query
from tidelog.rpc import Cluster
from tidelog.rpc.groups import committed_offset
from tidelog.spark.sink import decisions as module
from tidelog.spark.sink.decisions import Decisions, OtherBatch
from tidelog.spark.sink.fingerprint import Fingerprint
from tidelog.testing import Broker
from tidelog.wire.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.usefixtures("own_connections")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE, offsets_topic_num_partitions=2) as broker:
        yield broker


@pytest.fixture
def query(broker: Broker) -> Query:
    return Query(broker.bootstrap)


@pytest.mark.parametrize(
    ("code", "asked_for_ms"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, [60_000]),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, [60_000, 15_000, 5_000, 1_000]),
    ],
)
def test_a_driver_that_may_not_take_over_says_why_and_asks_again_only_for_less_time(
    query: Query, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, asked_for_ms: list[int]
) -> None:
    asked: list[int] = []

    def refused(*_: Any, timeout_ms: int) -> None:
        asked.append(timeout_ms)
        raise KafkaError(code)

    monkeypatch.setattr(module, "init_producer", refused)
    with Cluster(query.bootstrap) as cluster, pytest.raises(KafkaError) as error:
        Decisions(cluster, query.sink, "run", f"{query.topic}-decided").commit(0, None, ())
    assert (error.value.code, asked) == (code, asked_for_ms)


def test_of_decisions_after_its_group_was_forgotten_only_the_first_is_told_to_the_version_before(query: Query) -> None:
    """That version looks in the group that has the sink's own name, and stops where it finds another's decision."""
    place = (query.options.decisions, 0)
    with Cluster(query.bootstrap) as cluster:
        for batch in (0, 1):
            query.commit(batch, query.task(batch, b"a"))
        assert committed_offset(cluster, query.sink, place) is None
        query.forget()
        for batch in (2, 3):
            query.commit(batch, query.task(batch, b"b", run="next"))
            told = committed_offset(cluster, query.sink, place)
            assert told is not None
            assert told[0] == 2


def test_a_batch_is_checked_unless_that_is_not_wanted(query: Query) -> None:
    with Cluster(query.bootstrap) as cluster:
        decisions = Decisions(cluster, query.sink, "run", f"{query.topic}-decided")
        one, other = Fingerprint(1, 5), Fingerprint(2, 7)
        assert decisions.commit(0, None, (), one)
        assert not decisions.commit(0, None, (), one)
        assert not decisions.commit(0, None, (), other, checked=False)
        with pytest.raises(OtherBatch):
            decisions.commit(0, None, (), other)
