"""A table that is replayed comes to a topic in the words of Spark's own sink."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, read
from tidelog.spark.pipeline.replay import replay_table
from tidelog.spark.pipeline.sinks.json_rows import key_of
from tidelog.testing import Broker

pyarrow = pytest.importorskip("pyarrow.parquet", reason="needs pip install tidelog[spark]")

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]

ROW = """select 1 as id, timestamp'2026-01-31 12:00:00.123' as at, timestamp'2026-01-31 12:00:00' as whole,
    timestamp_ntz'2026-01-31 12:00:00.5' as here, date'2026-01-31' as day, 1.20BD as price,
    cast(1e22 as decimal(38, 2)) as much, cast('ab' as binary) as raw, double('nan') as nan, double('-inf') as low,
    double(1e20) as large, double(1e-5) as small, double(12345678.9) as middle, double(-0.05) as less,
    double(0) as zero, float(0.1) as short, tinyint(-3) as tiny, true as yes, 123456789012345678L as long,
    'ä€"' as text, map('k', timestamp'2026-01-31 12:00:00') as days,
    named_struct('a', date'2026-01-31', 'n', cast(null as int)) as both,
    array(1.10BD, null) as prices, cast(null as string) as none"""
KEYS = ("id", "at", "whole", "here", "day", "price", "raw", "low", "large", "small", "middle", "short", "yes", "text")


@pytest.mark.parametrize("times", ["INT96", "TIMESTAMP_MICROS"])
def test_a_row_and_its_key_are_what_the_sink_would_write(
    spark: Any, broker: Broker, tmp_path: Path, times: str
) -> None:
    from pyspark.sql import functions as F

    table = tmp_path / "table"
    spark.conf.set("spark.sql.parquet.outputTimestampType", times)
    try:
        spark.sql(ROW).write.parquet(str(table))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    rows = spark.read.parquet(str(table))
    whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    [expected] = rows.select(whole.alias("row"), *(F.col(name).cast("string").alias(name) for name in KEYS)).collect()
    topic = f"replayed-{times.lower()}"
    Admin(broker.bootstrap).create_topic(topic, 1)
    assert replay_table(broker.bootstrap, table, topic, "at", print) == 1
    [message] = read(broker.bootstrap, topic, stop_at_end=True)
    assert (message.key, message.value) == (expected["at"].encode(), expected["row"].encode())
    rows = pyarrow.read_table(table)
    keys = {name: key_of(rows.schema.field(name).type)(rows[name][0].as_py()) for name in KEYS}
    assert keys == {name: expected[name] for name in KEYS} | {"raw": b"ab"}


def test_microseconds_are_kept_and_nothing_has_no_key(broker: Broker, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
    rows = arrow.table({"id": arrow.array([None], arrow.int64()), "at": [moment]})
    pyarrow.write_table(rows, tmp_path / "rows.parquet")
    Admin(broker.bootstrap).create_topic("replayed-times", 1)
    assert replay_table(broker.bootstrap, tmp_path / "rows.parquet", "replayed-times", "id", print) == 1
    [message] = read(broker.bootstrap, "replayed-times", stop_at_end=True)
    assert json.loads(message.value or b"") == {"id": None, "at": "2026-01-31T12:00:00.123456Z"}
    assert message.key is None
