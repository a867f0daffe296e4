"""What sinks are called: by themselves, in groups, and for people."""

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tests.spark.writing import Query
from tidelog.client.groups import Groups
from tidelog.spark.sink.sink_name import Job, described, group_of, job_of, job_sink, older_name
from tidelog.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True, "transaction.state.log.num.partitions": 1}) as broker:
        yield broker


def test_the_group_of_a_sink_says_whose_it_is(broker: Broker) -> None:
    query = Query(broker.bootstrap)
    query.commit(0, query.task(0, b"a"))
    assert Groups(broker.bootstrap).names() == [f"tidelog-spark-{query.sink}"]


def test_the_group_of_an_earlier_version_is_looked_for_where_that_had_it() -> None:
    sink = job_sink(Job("results", "", "nightly"))
    assert group_of(sink) == "tidelog-spark-job:results::nightly"
    assert group_of(older_name(sink) or "") == "job-nightly"


@pytest.mark.parametrize("name", ["job:", "job:x", "job:x:y"])
def test_a_name_that_no_job_has_is_taken_for_a_query(name: str) -> None:
    assert (job_of(name), older_name(name), described(name)) == (None, None, f"query {name}")
