"""Bad input: rows that don't parse, schemas that changed, topics that vanish or are others, a broker that is away."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, Producer, read
from tidelog.spark.pipeline.file.check import PipelineError
from tidelog.spark.pipeline.file.model import load
from tidelog.spark.pipeline.file.spec import Avro, Decoding, Json, Text
from tidelog.spark.pipeline.run.runner import run
from tidelog.spark.pipeline.run.status import read_status
from tidelog.spark.pipeline.tables.decode import BAD, REASON, DecodeError, decoded, inferred
from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]

RECORD = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
INNER = "struct<n:int,deep:struct<k:string>>"
SCHEMA = (
    "id long not null, name string, at timestamp, inner struct<n: int, deep: struct<k: string not null>>, worth double"
)
LATE = "no time before the year 10000: a number is seconds since 1970"
AWAY_S = 60.0
DEEP = b'{"id": 1, "inner": {"n": "x"}}'


def outcomes(spark: Any, decoding: Decoding, *values: bytes | None) -> list[tuple[Any, str | None]]:
    """What comes of each value: its first column, or why it is bad."""
    rows = [(None, value, "t", 0, offset, None) for offset, value in enumerate(values)]
    made = decoded(spark.createDataFrame(rows, RECORD), decoding).orderBy("_offset")
    return [(row[0], row[REASON] if row[BAD] else None) for row in made.select(made.columns[0], BAD, REASON).collect()]


def test_json_that_is_not_of_the_schema_is_bad_and_says_why(spark: Any) -> None:
    cases: list[tuple[bytes | None, str | None]] = [
        (b'{"id": 1, "name": "a", "at": "2026-01-31T12:00:00Z", "inner": {"n": 1}}', None),
        (b'{"id": 1}', None),  # what may be missing
        (b'{"id": 1, "more": true}', None),  # a new field
        (b'{"id": 1, "name": 5}', None),  # numbers are text too
        (None, None),  # a tombstone
        (b'{"id": "x", "name": "a"}', "not of the schema: id is no bigint"),
        (b'{"id": 1.5}', "not of the schema: id is no bigint"),
        (b'{"id": 1, "at": "yesterday"}', "not of the schema: at is no timestamp"),
        (b'{"id": 1, "at": true, "inner": 3}', f"not of the schema: at is no timestamp, inner is no {INNER}"),
        (DEEP, f"not of the schema: inner is no {INNER}"),
        (b'{"name": "a"}', "id is missing or null"),
        (b'{"id": null, "at": 1769860800000}', f"id is missing or null, at is {LATE}"),
        (b'{"id": 1, "at": 1769860800}', None),  # seconds
        (b'{"id": 1, "worth": 1e400}', "worth is too large"),
        (b'{"id": 1, "worth": NaN}', "not JSON"),
        (b"{'id': 1}", "not JSON"),
        (b'{"id": 1, "inner": {"n": 1, "deep": {}}}', "inner.deep.k is missing or null"),
        (b'{"id": 1, "inner": {"n": 1}}', None),
        (b'{"id": 1, "more": ' + b"[" * 2000 + b"]" * 2000 + b"}", "not JSON"),
        (b"{not json", "not JSON"),
        (b"", "not JSON"),
        (b'{"id": 1', "not JSON"),
        (b"null", "not of the schema: not one object"),
        (b'[{"id": 1}, {"id": 2}]', "not of the schema: not one object"),
        (b'{"id": 1}{"id": 2}', "not of the schema: not one object"),
        (b'{"id": 1},{"id": 2}', "not of the schema: not one object"),
        (b'{"id": 1},"id": {"id": 2}', "not of the schema: not one object"),
        (b'{"id": 1, "name": "\xff"}', "not UTF-8"),
    ]
    outcome = outcomes(spark, Json(SCHEMA), *(value for value, _ in cases))
    assert [(value, reason) for (value, _), (_, reason) in zip(cases, outcome, strict=True)] == cases


def test_a_schema_may_not_have_the_columns_that_every_source_has(spark: Any) -> None:
    for schema in ("id long, _key string", "id long, _Offset long"):
        with pytest.raises(DecodeError, match=r"_\w+ is a column of every decoded source: leave it out of the schema"):
            outcomes(spark, Json(schema), b"{}")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id long", "needs a schema in JSON"),
        ('"long"', "needs the schema of a record"),
        ('{"type": "record", "name": "O"}', "needs the schema of a record"),
        ('{"type": "record", "name": "O", "fields": [{"name": "id"}]}', "is no field: it needs a name and a type"),
    ],
)
def test_an_avro_schema_that_is_none_is_told(spark: Any, schema: str, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        outcomes(spark, Avro(schema), b"")


def test_text_and_a_registrys_bytes_are_looked_at(spark: Any) -> None:
    sample = spark.createDataFrame([(b"\0\0\0\0\1" + b'{"id": 7}',)], "value binary")
    assert inferred(sample, Json("infer", registry=True)) == "id BIGINT"
    assert outcomes(spark, Text(), b"sea", b"\xff", None) == [("sea", None), (None, "not UTF-8"), (None, None)]
    framed = b"\0\0\0\0\1" + b'{"id": 7}'
    assert outcomes(spark, Json("id long", registry=True), framed, b'{"id": 7}', b"\0\0", None) == [
        (7, None),
        (None, "it does not begin with the bytes of a schema registry"),
        (None, "it does not begin with the bytes of a schema registry"),
        (None, None),
    ]


FILE = """
name = "bad"
state = "state"

[source.orders]
topics = ["{topic}"]
decode = "json"
schema = "{schema}"
options = {{ "kafka.default.api.timeout.ms" = "{patience_ms}" }}

[[sink]]
from = "orders"
path = "lake"

[bad_rows]
{bad}
"""


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"bad-{time.monotonic_ns()}"
    Admin(broker.bootstrap).create_topic(name, 1)
    return name


def send(bootstrap: str, topic: str, *values: Any) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, value if isinstance(value, bytes) else json.dumps(value).encode())


def write(folder: Path, topic: str, bad: str = "drop = true", schema: str = "id long", patience_ms: int = 5000) -> Path:
    file = folder / "bad.toml"
    file.write_text(FILE.format(topic=topic, bad=bad, schema=schema, patience_ms=patience_ms))
    return file


@pytest.mark.long
def test_dropped_rows_are_told_of_and_a_schema_may_be_inferred(
    spark: Any, broker: Broker, topic: str, tmp_path: Path
) -> None:
    send(broker.bootstrap, topic, {"id": 1, "city": "Brest"}, {"id": 2, "city": None}, b"{")
    said: list[str] = []
    pipeline = load(write(tmp_path, topic, schema="infer"), broker.bootstrap)
    run(pipeline, spark, once=True, tell=said.append)
    send(broker.bootstrap, topic, {"id": "three"}, {"id": 4, "new": True})
    run(pipeline, spark, once=True, tell=said.append)
    rows = spark.read.parquet(str(tmp_path / "lake")).orderBy("id").collect()
    assert [(row.id, row.city) for row in rows] == [(1, "Brest"), (2, None), (4, None)]
    status = read_status(tmp_path / "state")
    assert status is not None
    assert status["left_out"]["bad-rows"]["rows"] == 2
    assert [line for line in said if "decoded" in line] == [
        f"bad: bad-rows: 1 row could not be decoded, dropped; for example {topic}-0 offset 2: not JSON",
        f"bad: bad-rows: 2 rows could not be decoded, dropped; for example {topic}-0 offset 3: "
        "not of the schema: id is no bigint",
    ]


@pytest.mark.long
def test_a_bad_row_as_large_as_a_record_may_be_is_a_letter_too(
    spark: Any, broker: Broker, topic: str, tmp_path: Path
) -> None:
    large = b"{" + b"x" * (1024 * 1024 - 100)
    with Producer(broker.bootstrap, message_max_bytes=2**21, compression_type="none") as producer:
        producer.send(topic, large)
    pipeline = load(write(tmp_path, topic, bad=f'topic = "{topic}-dead"\npartitions = 1'), broker.bootstrap)
    run(pipeline, spark, once=True, tell=print)
    [letter] = read(broker.bootstrap, f"{topic}-dead", stop_at_end=True, isolation_level="read_committed")
    assert letter.value == large


@pytest.mark.long
def test_a_row_that_a_step_fails_on_is_dropped_where_bad_rows_are(
    spark: Any, broker: Broker, topic: str, tmp_path: Path
) -> None:
    send(broker.bootstrap, topic, {"id": 1, "name": "7"}, {"id": 2, "name": "x"})
    file = write(tmp_path, topic, schema="id long, name string")
    step = '[[step]]\nname = "numbers"\nsql = "select id, cast(name as int) as number from orders"\n\n[[sink]]'
    file.write_text(file.read_text().replace("[[sink]]", step).replace('from = "orders"', 'from = "numbers"'))
    said: list[str] = []
    run(load(file, broker.bootstrap), spark, once=True, tell=said.append)
    rows = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert [(row.id, row.number) for row in rows] == [(1, 7)]
    assert f"lake-failed: 1 row failed in step numbers, dropped; for example {topic}-0 offset 1" in "\n".join(said)


STILL = """
name = "still"
state = "state"

[source.people]
format = "csv"
path = "people.csv"
schema = "name string, age string"

[[step]]
name = "ages"
sql = \"\"\"
select name,
  cast(age as int) as age
from people
\"\"\"

[[sink]]
from = "ages"
path = "file://{folder}/out"
"""


@pytest.mark.long
def test_a_table_goes_to_an_address_once_its_step_is_mended(spark: Any, broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "still.toml"
    file.write_text(STILL.format(folder=tmp_path))
    (tmp_path / "people.csv").write_text("ada,36\nbob,old\n")
    with pytest.raises(PipelineError, match=r"still.toml:14: step ages can't go on with a row: .*'old' of the type"):
        run(load(file, broker.bootstrap), spark, once=True, tell=print)
    file.write_text(file.read_text().replace("cast(", "try_cast("))
    run(load(file, broker.bootstrap), spark, once=True, tell=print)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("name").collect()
    assert [(row.name, row.age) for row in rows] == [("ada", 36), ("bob", None)]


@pytest.mark.long
def test_a_topic_made_again_stops_the_pipeline_until_it_may_ignore_it(
    spark: Any, broker: Broker, topic: str, tmp_path: Path
) -> None:
    send(broker.bootstrap, topic, {"id": 1}, {"id": 2})
    file = write(tmp_path, topic)
    run(load(file, broker.bootstrap), spark, once=True, tell=print)
    Admin(broker.bootstrap).delete_topic(topic)
    with pytest.raises(PipelineError, match=f"there is no topic {topic}; .*`tidelog topic create {topic}` makes it"):
        run(load(file, broker.bootstrap), spark, once=True, tell=print)
    Admin(broker.bootstrap).create_topic(topic, 1)
    send(broker.bootstrap, topic, {"id": 3}, {"id": 4}, {"id": 5})
    with pytest.raises(RuntimeError, match=f"{topic} was deleted and made again .* set ignore_loss = true"):
        run(load(file, broker.bootstrap), spark, once=True, tell=print)
    assert outcome(tmp_path) == "failed"
    file.write_text(file.read_text().replace("decode =", "ignore_loss = true\ndecode ="))
    run(load(file, broker.bootstrap), spark, once=True, tell=print)
    assert lake_ids(spark, tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.long
def test_a_broker_away_for_a_minute_costs_nothing(spark: Any, tmp_path: Path) -> None:
    """Once frozen and once killed, while the pipeline runs: it waits, and then has every row once."""
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        Admin(broker.bootstrap).create_topic("orders", 2)
        file = write(tmp_path, "orders", patience_ms=120_000)
        with Running(file, broker, spark) as running:
            send(broker.bootstrap, "orders", *({"id": number} for number in range(100)))
            wait_for(lambda: _count(spark, tmp_path) == 100)
            broker.pause()
            time.sleep(AWAY_S)
            broker.resume()
            send(broker.bootstrap, "orders", *({"id": number} for number in range(100, 200)))
            wait_for(lambda: _count(spark, tmp_path) == 200)
            broker.kill()
            time.sleep(AWAY_S)
            broker.start()
            send(broker.bootstrap, "orders", *({"id": number} for number in range(200, 300)))
            wait_for(lambda: _count(spark, tmp_path) == 300)
        assert running.failure is None
    assert lake_ids(spark, tmp_path) == list(range(300))


@pytest.mark.long
def test_a_pipeline_that_lost_patience_says_so_and_goes_on_when_it_is_run_again(spark: Any, tmp_path: Path) -> None:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        Admin(broker.bootstrap).create_topic("orders", 1)
        send(broker.bootstrap, "orders", {"id": 1})
        file = write(tmp_path, "orders", patience_ms=3000)
        with Running(file, broker, spark) as running:
            wait_for(lambda: _count(spark, tmp_path) == 1)
            broker.kill()
            wait_for(lambda: running.failure is not None)
        assert "no broker at" in str(running.failure)
        assert outcome(tmp_path) == "failed"
        broker.start()
        send(broker.bootstrap, "orders", {"id": 2})
        run(load(file, broker.bootstrap), spark, once=True, tell=print)
    assert lake_ids(spark, tmp_path) == [1, 2]


class Running:
    """A pipeline that runs beside the test, until the block ends."""

    def __init__(self, file: Path, broker: Broker, spark: Any) -> None:
        self.failure: BaseException | None = None
        self._spark = spark
        self._thread = threading.Thread(target=self._run, args=(load(file, broker.bootstrap),))

    def _run(self, pipeline: Any) -> None:
        try:
            run(pipeline, self._spark, tell=print)
        except RuntimeError as failure:
            self.failure = failure

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for query in self._spark.streams.active:
            query.stop()
        self._thread.join(120)


def outcome(folder: Path) -> str:
    status = read_status(folder / "state")
    assert status is not None
    return status["outcome"]


def lake_ids(spark: Any, folder: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(folder / "lake")).collect())


def _count(spark: Any, folder: Path) -> int:
    files = list((folder / "lake").glob("*.parquet"))
    return spark.read.parquet(*map(str, files)).count() if files else 0


def wait_for(condition: Callable[[], bool], limit_s: float = 180.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to it"
        time.sleep(0.5)
