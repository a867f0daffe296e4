"""`python -m bench.spark`: Tidelog's data source beside Spark's own Kafka connector, on one broker, in one run.

Each case is warmed once, then both take turns; the table shows medians. The connector is left out where its jars can't
be had. `--plain` reads with the decoder uncompiled: what a machine without a C compiler gets.
"""

import argparse
import os
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.spark.connector import NoConnector, connector_jars

from tidelog.client import Admin
from tidelog.rpc import Cluster
from tidelog.rpc.produce import produce
from tidelog.testing import Broker
from tidelog.wire.batch import build
from tidelog.wire.record import Record

PARTITIONS = 4
BATCH_BYTES = 256 * 1024
OURS, THEIRS = "tidelog", "kafka"


@dataclass(frozen=True, slots=True)
class Load:
    topic: str
    value_bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    load: Load
    run: Callable[[Any, str, str, Load], float]
    """(spark, format, bootstrap, load) -> seconds."""
    least: float


def main() -> int:
    options = _options()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if options.plain:
        os.environ["TIDELOG_NATIVE"] = "off"
    console = Console(width=None if sys.stdout.isatty() else 120)
    formats, jars = [OURS], ""
    try:
        jars, formats = ",".join(connector_jars()), [OURS, THEIRS]
    except NoConnector as error:
        console.print(f"Without Spark's connector: {error}", highlight=False)
    spark = _spark(jars)
    try:
        with Broker({"transaction.two.phase.commit.enable": True}) as broker:
            found = _run(spark, broker, formats, options, console)
    finally:
        spark.stop()
    _show(found, console)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark")
    parser.add_argument("--rows", type=int, default=8_000_000, help="rows of 100 B; of 1 KB an eighth (8000000)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after a warming one (3)")
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--plain", action="store_true", help="without the compiled decoder")
    return parser.parse_args()


def _spark(jars: str) -> Any:
    from pyspark.sql import SparkSession

    building = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    building = building.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "3g")
    if jars:
        building = building.config("spark.jars", jars)
    spark = building.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _run(spark: Any, broker: Broker, formats: list[str], options: argparse.Namespace, console: Console) -> Any:
    small = Load("rows-100b", 100, options.rows)
    large = Load("rows-1kb", 1000, max(1, options.rows // 8))
    cases = [
        Case("read-100b-batch", small, _batch, 1.0),
        Case("read-100b-available-now", small, _available_now, 1.0),
        Case("read-1kb-batch", large, _batch, 1.0),
        Case("read-1kb-available-now", large, _available_now, 1.0),
        Case("write-100b", Load("written-100b", 100, max(1, options.rows // 4)), _write, 0.7),
    ]
    chosen = [case for case in cases if case.name.startswith(options.only)]
    for load in {case.load for case in chosen}:
        Admin(broker.bootstrap).create_topic(load.topic, PARTITIONS)
        if load.topic.startswith("rows-"):
            _fill(broker.bootstrap, load)
    found: dict[str, tuple[Case, dict[str, list[float]]]] = {}
    for case in chosen:
        times: dict[str, list[float]] = {name: [] for name in formats}
        for turn in range(options.rounds + 1):
            for name in formats if turn % 2 else reversed(formats):
                console.print(f"{case.name}: {'warming' if not turn else f'round {turn}'}, {name}", highlight=False)
                seconds = case.run(spark, name, broker.bootstrap, case.load)
                if turn:
                    times[name].append(seconds)
        found[case.name] = case, times
    return found


def _fill(bootstrap: str, load: Load) -> None:
    """Batches that are built once and sent again and again: the broker gives each its offsets."""
    count = max(1, BATCH_BYTES // load.value_bytes)
    now_ms = int(time.time() * 1000)
    records = [
        Record(timestamp=now_ms, key=b"%012d" % index, value=os.urandom(load.value_bytes)) for index in range(count)
    ]
    batch = build(records)
    left = load.rows
    with Cluster(bootstrap) as cluster:
        turn = 0
        while left > 0:
            if left < count:
                batch = build(records[:left])
            produce(cluster, load.topic, turn % PARTITIONS, batch)
            left -= min(left, count)
            turn += 1


def _batch(spark: Any, name: str, bootstrap: str, load: Load) -> float:
    table = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap).option("subscribe", load.topic).load()
    began = time.monotonic()
    table.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def _write(spark: Any, name: str, bootstrap: str, load: Load) -> float:
    """Ours exactly once, under a job's id; the connector's at least once, which is all it has."""
    value = f"rpad(cast(id as string), {load.value_bytes}, 'x') as value"
    rows = spark.range(0, load.rows, 1, 4).selectExpr("cast(id as string) as key", value)
    writing = rows.write.format(name).option("kafka.bootstrap.servers", bootstrap).option("topic", load.topic)
    if name == OURS:
        writing = writing.option("jobId", secrets.token_hex(8))
    began = time.monotonic()
    writing.mode("append").save()
    return time.monotonic() - began


def _available_now(spark: Any, name: str, bootstrap: str, load: Load) -> float:
    reading = spark.readStream.format(name).option("kafka.bootstrap.servers", bootstrap)
    table = reading.option("subscribe", load.topic).option("startingOffsets", "earliest").load()
    folder = tempfile.mkdtemp(prefix="tidelog-bench-")
    try:
        began = time.monotonic()
        writing = table.writeStream.format("noop").option("checkpointLocation", str(Path(folder, "checkpoint")))
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.monotonic() - began
        read = sum(each["numInputRows"] for each in query.recentProgress)
        assert read == load.rows, f"{name} read {read} rows of {load.rows}"
        return seconds
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _show(found: dict[str, tuple[Case, dict[str, list[float]]]], console: Console) -> None:
    table = Table("case", "tidelog, rows/s", "connector, rows/s", "ratio", "target")
    for name, (case, times) in found.items():
        medians = {each: statistics.median(seconds) for each, seconds in times.items() if seconds}
        rates = {each: case.load.rows / seconds for each, seconds in medians.items()}
        theirs = rates.get(THEIRS)
        ratio = rates[OURS] / theirs if theirs else None
        target = "" if ratio is None else f"at least {case.least:g}: {'met' if ratio >= case.least else 'MISSED'}"
        table.add_row(
            name,
            f"{rates[OURS]:,.0f}",
            "" if theirs is None else f"{theirs:,.0f}",
            "" if ratio is None else f"{ratio:.2f}",
            target,
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
