"""Which rows are found where a step fails, and which are not: what is joined, grouped, filtered, or no row's fault."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, Producer, read
from tidelog.spark.pipeline.file.check import PipelineError
from tidelog.spark.pipeline.file.model import Pipeline, load
from tidelog.spark.pipeline.run.runner import run
from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S), pytest.mark.long]

SOURCE = """
[source.{name}]
{what}
decode = "json"
schema = "id long, amount string, at timestamp, topic string, why string"
watermark = "at 1 minute"
{more}
"""
LAKE = '\n[[sink]]\nfrom = "{table}"\npath = "lake"\n'
Make = Callable[..., Pipeline]


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = f"finding-{abs(hash((request.node.nodeid, str(broker))))}"
    Admin(broker.bootstrap).create_topic(name, 2)
    return name


@pytest.fixture
def make(broker: Broker, topic: str, tmp_path: Path) -> Make:
    """A pipeline of these parts; {topic} in them is the test's."""

    def made(*parts: str) -> Pipeline:
        file = tmp_path / "finding.toml"
        head = f'name = "{topic}"\nstate = "state"\n'
        bad = f'\n[bad_rows]\ntopic = "{topic}-dead"\npartitions = 1\n'
        file.write_text(head + "".join(parts).replace("{topic}", topic) + bad)
        return load(file, broker.bootstrap)

    return made


def source(name: str = "orders", what: str = 'topics = ["{topic}"]', more: str = "") -> str:
    return SOURCE.format(name=name, what=what, more=more)


def step(name: str, sql: str, more: str = "") -> str:
    return f"\n[[step]]\nname = \"{name}\"\nsql = '''{sql}'''\n{more}\n"


def send(broker: Broker, topic: str, *amounts: str, first: int = 0, at: str = "2026-01-31T12:00:00Z") -> None:
    with Producer(broker.bootstrap) as producer:
        for number, amount in enumerate(amounts, first):
            value = json.dumps({"id": number, "amount": amount, "at": at}).encode()
            producer.send(topic, value, key=b"%d" % number, partition=number % 2)


def letters(broker: Broker, topic: str) -> list[int]:
    messages = read(broker.bootstrap, f"{topic}-dead", stop_at_end=True, isolation_level="read_committed")
    return sorted(int(each.key or b"-1") for each in messages)


def reasons(broker: Broker, topic: str) -> list[str]:
    messages = read(broker.bootstrap, f"{topic}-dead", stop_at_end=True, isolation_level="read_committed")
    return [(dict(each.headers)["tidelog.reason"] or b"").decode() for each in messages]


def ids(spark: Any, folder: Path, name: str = "lake") -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(folder / name)).collect())


def test_rows_of_both_sides_of_a_join_of_streams_are_found(
    spark: Any, broker: Broker, topic: str, make: Make, tmp_path: Path
) -> None:
    """Also where a batch has nothing of the other side: nothing could come of the row, and it fails all the same."""
    Admin(broker.bootstrap).create_topic(f"{topic}-paid", 2)
    pipeline = make(
        source(),
        source("payments", 'topics = ["{topic}-paid"]'),
        step("amounts", "select id, cast(amount as int) as amount from orders"),
        step("paid", "select id as paid_id, 60 / cast(amount as int) as share from payments"),
        step("both", "select id, amount, share from amounts join paid on id = paid_id"),
        LAKE.format(table="both"),
    )
    send(broker, topic, "1", "x", "3", "4")
    send(broker, f"{topic}-paid", "1", "2", "0", "4")
    run(pipeline, spark, once=True, tell=print)
    assert (ids(spark, tmp_path), letters(broker, topic)) == ([0, 3], [1, 2])
    send(broker, topic, "5", "x", first=4)
    run(pipeline, spark, once=True, tell=print)
    send(broker, f"{topic}-paid", "5", "6", first=4)
    run(pipeline, spark, once=True, tell=print)
    assert (ids(spark, tmp_path), letters(broker, topic)) == ([0, 3, 4], [1, 2, 5])


def test_a_source_that_began_by_time_a_column_that_no_sink_writes_and_a_value_of_two_lines(
    spark: Any, broker: Broker, topic: str, make: Make, tmp_path: Path
) -> None:
    pipeline = make(
        source(more='from = "2h"'),
        step("amounts", "select id, topic, why,\n  cast(amount as int) as _amount\nfrom orders"),
        LAKE.format(table="amounts"),
    )
    send(broker, topic, "1", "one\ntwo " + "x" * 100_000, "3")
    run(pipeline, spark, once=True, tell=print)
    assert (ids(spark, tmp_path), letters(broker, topic)) == ([0, 2], [1])
    [reason] = reasons(broker, topic)
    assert reason.startswith("step amounts: [CAST_INVALID_INPUT] The value 'one two xxx")
    assert len(reason) < 1000


def test_a_table_beside_the_stream_may_be_at_fault_and_no_row_is(
    spark: Any, broker: Broker, topic: str, make: Make, tmp_path: Path
) -> None:
    (tmp_path / "names.csv").write_text("0,1\n1,many\n")
    table = '[source.names]\nformat = "csv"\npath = "names.csv"\nschema = "number long, name string"\n'
    pipeline = make(
        source(),
        table,
        step("amounts", "select /*+ merge(names) */ id from orders join names on id = cast(name as int)"),
        LAKE.format(table="amounts"),
    )
    send(broker, topic, "1", "2", "3")
    with pytest.raises(PipelineError, match=r"step amounts can't go on with a row: \[CAST_INVALID_INPUT\]"):
        run(pipeline, spark, once=True, tell=print)
    assert letters(broker, topic) == []


def test_steps_with_the_same_words_are_not_taken_for_one_another(
    spark: Any, broker: Broker, topic: str, make: Make, tmp_path: Path
) -> None:
    """Each row alone would fail in the second, which has groups; and the first is the one that is told of."""
    pipeline = make(
        source(),
        step("rows", "select 60 / (n - 1) as share, id, at from (select id as n, id, at from orders)"),
        step(
            "groups", "select 60 / (n - 1) as share, id from (select 7 as id, count(*) as n from rows group by id % 3)"
        ),
        '\n[[sink]]\nfrom = "groups"\ntopic = "{topic}-out"\npartitions = 1\nmode = "complete"\n',
    )
    send(broker, topic, *"aaaa", first=2)
    with pytest.raises(PipelineError, match=r"can't go on with a row: \[DIVIDE_BY_ZERO\]"):
        run(pipeline, spark, once=True, tell=print)
    assert letters(broker, topic) == []


def test_a_step_that_keeps_one_row_of_several_and_one_that_puts_two_streams_together(
    spark: Any, broker: Broker, topic: str, make: Make, tmp_path: Path
) -> None:
    Admin(broker.bootstrap).create_topic(f"{topic}-more", 2)
    pipeline = make(
        source("Orders"),
        source("More", 'topics = ["{topic}-more"]'),
        step("one", "select id, cast(amount as int) as amount, at from orders", 'dedup = ["id"]'),
        step("all", "select id, 60 / amount as share from orders union all select id, 60 / amount from more"),
        LAKE.format(table="one"),
        '\n[[sink]]\nfrom = "all"\npath = "all"\n',
    )
    send(broker, topic, "1", "x", "0", "4", "4")
    send(broker, f"{topic}-more", "5", "0", "7", first=5)
    run(pipeline, spark, once=True, tell=print)
    assert ids(spark, tmp_path) == [0, 2, 3, 4]
    assert ids(spark, tmp_path, "all") == [0, 3, 4, 5, 7]
    assert letters(broker, topic) == [1, 2, 6]


WINDOWS = """select window.start as at, sum(amount) as amount, 60 / (count(*) - 1) as share
from amounts group by window(at, '1 minute')"""


@pytest.mark.parametrize("mode", ["append", "update"])
def test_what_windows_sum_up_is_right_and_that_few_rows_make_a_bad_group_is_no_rows_fault(
    spark: Any, broker: Broker, topic: str, make: Make, tmp_path: Path, mode: str
) -> None:
    pipeline = make(
        source(more="max_rows = 8"),
        step("amounts", "select id, cast(amount as int) as amount, at from orders"),
        step("windows", WINDOWS),
        f'\n[[sink]]\nfrom = "windows"\ntopic = "{{topic}}-out"\npartitions = 1\nmode = "{mode}"\nkey = "at"\n',
    )
    for minute in range(4):
        amounts = ["x" if minute in (1, 2) and number == 3 else "1" for number in range(8)]
        send(broker, topic, *amounts, first=8 * minute, at=f"2026-01-31T12:0{minute}:10Z")
    run(pipeline, spark, once=True, tell=print)
    send(broker, topic, "1", "1", "x", first=32, at="2026-01-31T12:20:00Z")
    run(pipeline, spark, once=True, tell=print)
    out = read(broker.bootstrap, f"{topic}-out", stop_at_end=True, isolation_level="read_committed")
    last = {(each.key or b"").decode()[11:16]: json.loads(each.value or b"")["amount"] for each in out}
    whole = {"12:00": 8, "12:01": 7, "12:02": 7, "12:03": 8, "12:20": 2}
    assert last == (whole if mode == "update" else {at: sum_ for at, sum_ in whole.items() if at != "12:20"})
    assert letters(broker, topic) == [11, 19, 34]


def test_offsets_without_rows_new_partitions_and_new_topics(
    spark: Any, broker: Broker, topic: str, make: Make, tmp_path: Path
) -> None:
    """Aborted transactions and their markers, tombstones, a topic that comes later and one that grows."""
    pipeline = make(
        source(what='pattern = "^{topic}-in.*"'),
        step("amounts", "select coalesce(id, -1) as id, cast(coalesce(amount, 'none') as int) as amount from orders"),
        LAKE.format(table="amounts"),
    )
    Admin(broker.bootstrap).create_topic(f"{topic}-in", 2)
    transactions = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    transactions.init_transactions()
    for number in range(3):
        for key, amount, end in (
            (9, "x", transactions.abort_transaction),
            (number, "x" if number == 1 else "1", transactions.commit_transaction),
        ):
            transactions.begin_transaction()
            value = json.dumps({"id": key, "amount": amount}).encode()
            transactions.produce(f"{topic}-in", value, key=b"%d" % key, partition=0)
            transactions.flush()
            end()
    with Producer(broker.bootstrap) as producer:
        producer.send(f"{topic}-in", None, key=b"100", partition=1)
    run(pipeline, spark, once=True, tell=print)
    assert (ids(spark, tmp_path), letters(broker, topic)) == ([0, 2], [1, 100])
    Admin(broker.bootstrap).add_partitions(f"{topic}-in", 4)
    Admin(broker.bootstrap).create_topic(f"{topic}-in-more", 1)
    with Producer(broker.bootstrap) as producer:
        for name, number, partition in (("in", 3, 3), ("in", 4, 2), ("in-more", 5, 0), ("in-more", 6, 0)):
            value = json.dumps({"id": number, "amount": "x" if number in (3, 6) else "1"}).encode()
            producer.send(f"{topic}-{name}", value, key=b"%d" % number, partition=partition)
    run(pipeline, spark, once=True, tell=print)
    assert (ids(spark, tmp_path), letters(broker, topic)) == ([0, 2, 4, 5], [1, 3, 6, 100])


def test_a_sink_that_needs_no_row_that_fails_has_it_and_one_that_leaves_it_out_does_not_fail(
    spark: Any, broker: Broker, topic: str, make: Make, tmp_path: Path
) -> None:
    """A later step leaves rows out, or takes no look at what fails: Spark does not compute it, and it is no letter."""
    pipeline = make(
        source(),
        step("amounts", "select id, cast(amount as int) as amount, _offset from orders"),
        step("guarded", "select id, case when id <> 1 then amount end as amount from amounts where id <> 3"),
        step("only", "select id from amounts"),
        LAKE.format(table="guarded"),
        '\n[[sink]]\nfrom = "only"\npath = "only"\n',
        '\n[[sink]]\nfrom = "amounts"\npath = "newest"\nupsert_by = ["id"]\n',
    )
    send(broker, topic, "1", "x", "3", "x", "x", "6")
    run(pipeline, spark, once=True, tell=print)
    assert ids(spark, tmp_path) == [0, 1, 2, 5]
    assert ids(spark, tmp_path, "only") == [0, 1, 2, 3, 4, 5]
    assert ids(spark, tmp_path, "newest") == [0, 2, 5]
    assert letters(broker, topic) == [1, 3, 4]
