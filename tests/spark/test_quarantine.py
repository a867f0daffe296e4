"""Rows that a step fails on: found, sent to the dead letters, and the query goes on without them."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, Producer, read
from tidelog.spark.pipeline.file.check import PipelineError
from tidelog.spark.pipeline.file.model import load
from tidelog.spark.pipeline.quarantine import restart
from tidelog.spark.pipeline.redrive import redrive
from tidelog.spark.pipeline.run.runner import run
from tidelog.spark.pipeline.run.status import read_status
from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]

FILE = """
name = "{topic}"
state = "state"

[source.orders]
topics = ["{topic}"]
decode = "json"
schema = "id long, amount string"
max_rows = {max_rows}

[[step]]
name = "amounts"
sql = \"\"\"
select id,
  cast(amount as int) as amount,
  _offset
from orders
\"\"\"
{more}

[bad_rows]
topic = "{topic}-dead"
partitions = 1
"""
LAKE = '\n[[sink]]\nfrom = "amounts"\npath = "lake"\n'
TOPIC = '\n[[sink]]\nfrom = "amounts"\ntopic = "{topic}-out"\npartitions = 1\n'
SUMS = """
[[step]]
name = "sums"
sql = "select id % 2 as odd, sum(amount) as amount, 60 / count(amount) as share from amounts group by 1"

[[sink]]
from = "sums"
topic = "{topic}-sums"
partitions = 1
mode = "complete"
key = "odd"
"""


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = f"unfit-{abs(hash(request.node.nodeid)) % 10**9}"
    Admin(broker.bootstrap).create_topic(name, 2)
    return name


def send(broker: Broker, topic: str, *amounts: str, first: int = 0) -> None:
    with Producer(broker.bootstrap) as producer:
        for number, amount in enumerate(amounts, first):
            value = json.dumps({"id": number, "amount": amount}).encode()
            producer.send(topic, value, key=b"k%d" % number, partition=number % 2, headers=[("h", b"%d" % number)])


def written(folder: Path, topic: str, more: str, max_rows: int = 1000) -> Path:
    file = folder / "unfit.toml"
    file.write_text(FILE.format(topic=topic, more=more.format(topic=topic), max_rows=max_rows))
    return file


def letters(broker: Broker, topic: str) -> list[tuple[bytes | None, dict[str, bytes | None]]]:
    messages = read(broker.bootstrap, f"{topic}-dead", stop_at_end=True, isolation_level="read_committed")
    return sorted(((each.key, dict(each.headers)) for each in messages), key=lambda each: each[0] or b"")


def lake(spark: Any, folder: Path) -> list[tuple[int, int]]:
    return sorted((row.id, row.amount) for row in spark.read.parquet(str(folder / "lake")).collect())


def test_a_row_that_a_step_fails_on_is_a_dead_letter_and_the_query_goes_on(
    spark: Any, broker: Broker, topic: str, tmp_path: Path
) -> None:
    send(broker, topic, *("x" if number == 7 else str(number) for number in range(20)))
    said: list[str] = []
    run(load(written(tmp_path, topic, LAKE), broker.bootstrap), spark, once=True, tell=said.append)
    assert lake(spark, tmp_path) == [(number, number) for number in range(20) if number != 7]
    [(key, headers)] = letters(broker, topic)
    assert (key, headers["h"], headers["tidelog.topic"]) == (b"k7", b"7", topic.encode())
    assert (headers["tidelog.partition"], headers["tidelog.offset"]) == (b"1", b"3")
    assert (headers["tidelog.reason"] or b"").startswith(b"step amounts: [CAST_INVALID_INPUT] The value 'x'")
    status = read_status(tmp_path / "state")
    assert status is not None
    assert status["left_out"]["lake-failed"]["rows"] == 1
    assert f"1 row failed in step amounts, sent to {topic}-dead" in "\n".join(said)


@pytest.mark.long
def test_a_row_that_two_sinks_fail_on_is_one_letter_and_comes_back_once_the_step_is_mended(
    spark: Any, broker: Broker, topic: str, tmp_path: Path
) -> None:
    send(broker, topic, *("x" if number in (33, 58) else str(number) for number in range(100)))
    file = written(tmp_path, topic, LAKE + TOPIC)
    run(load(file, broker.bootstrap), spark, once=True, tell=print)
    whole = [(number, number) for number in range(100) if number not in (33, 58)]
    assert lake(spark, tmp_path) == whole
    out = read(broker.bootstrap, f"{topic}-out", stop_at_end=True, isolation_level="read_committed")
    assert sorted(json.loads(each.value or b"")["id"] for each in out) == [number for number, _ in whole]
    assert [key for key, _ in letters(broker, topic)] == [b"k33", b"k58"]

    file.write_text(file.read_text().replace("cast(", "try_cast("))
    assert redrive(broker.bootstrap, f"{topic}-dead", None, None) == {topic: 2}
    run(load(file, broker.bootstrap), spark, once=True, tell=print)
    rows = spark.read.parquet(str(tmp_path / "lake")).where("amount is null").collect()
    assert sorted(row.id for row in rows) == [33, 58]


@pytest.mark.long
def test_later_batches_fail_too_and_what_is_counted_by_group_is_right(
    spark: Any, broker: Broker, topic: str, tmp_path: Path
) -> None:
    send(broker, topic, *("x" if number % 10 == 5 else "1" for number in range(40)))
    pipeline = load(written(tmp_path, topic, SUMS, max_rows=10), broker.bootstrap)
    run(pipeline, spark, once=True, tell=print)
    send(broker, topic, "1", "x", first=40)
    run(pipeline, spark, once=True, tell=print)
    out = read(broker.bootstrap, f"{topic}-sums", stop_at_end=True, isolation_level="read_committed")
    last = {each.key: json.loads(each.value or b"")["amount"] for each in out}
    assert last == {b"0": 21, b"1": 16}
    assert [key for key, _ in letters(broker, topic)] == [b"k15", b"k25", b"k35", b"k41", b"k5"]


@pytest.mark.long
def test_what_a_group_fails_on_is_no_rows_fault(spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    send(broker, topic, "1", "-1", "1")
    sums = SUMS.replace("60 / count(amount)", "60 / (sum(amount) - 2)")
    pipeline = load(written(tmp_path, topic, sums), broker.bootstrap)
    with pytest.raises(PipelineError, match=r"step sums can't go on with a row: \[DIVIDE_BY_ZERO\]"):
        run(pipeline, spark, once=True, tell=print)
    assert letters(broker, topic) == []


@pytest.mark.long
def test_a_step_that_fails_on_most_rows_is_to_be_mended(
    spark: Any, broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart, "ROWS_MAX", 3)
    send(broker, topic, *["x"] * 6)
    pipeline = load(written(tmp_path, topic, LAKE), broker.bootstrap)
    with pytest.raises(PipelineError, match=r"toml:15: step amounts can't go on with more than 3 rows of batch 0"):
        run(pipeline, spark, once=True, tell=print)
    assert letters(broker, topic) == []
    pipeline.file.write_text(pipeline.file.read_text().replace("cast(", "try_cast("))
    run(load(pipeline.file, broker.bootstrap), spark, once=True, tell=print)
    assert len(lake(spark, tmp_path)) == 6


@pytest.mark.long
def test_a_stream_beside_a_table_is_looked_at_row_by_row(
    spark: Any, broker: Broker, topic: str, tmp_path: Path
) -> None:
    send(broker, topic, "1", "x", "2")
    (tmp_path / "names.csv").write_text("0,zero\n1,one\n2,two\n")
    file = written(tmp_path, topic, '\n[[sink]]\nfrom = "named"\npath = "lake"\n')
    joined = "select id, name, cast(amount as int) as amount from orders join names on id = number"
    step = f'[[step]]\nname = "named"\nsql = "{joined}"\n\n[[sink]]'
    source = '[source.names]\nformat = "csv"\npath = "names.csv"\nschema = "number long, name string"\n\n[[step]]'
    text = file.read_text().replace("[[step]]", source, 1).replace("[[sink]]", step, 1)
    file.write_text(text)
    run(load(file, broker.bootstrap), spark, once=True, tell=print)
    assert lake(spark, tmp_path) == [(0, 1), (2, 2)]
    assert [key for key, _ in letters(broker, topic)] == [b"k1"]
