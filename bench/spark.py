"""Tidelog as Spark's source and sink, at local[2], beside Spark's own Kafka connector on the same broker.

Both read and write the same topics in the same JVM, in turns. CPU is that of everything together: the JVM, its Python
workers and the broker, since they share the machine. `--only spark` runs these alone.
"""

from functools import partial
from pathlib import Path

from tests.spark.conftest import java
from tests.spark.connector import NoConnector, connector_jars

from bench.brokers import TIDELOG, Tidelog
from bench.case import Bench, Case, Metrics
from bench.programs import BenchError
from bench.spark_audit import audit
from bench.spark_load import fill
from bench.spark_stage import CONNECTOR, Stage

ROWS = {100: 8_000_000, 1000: 4_000_000}
WRITTEN_ROWS = 2_000_000
PLAIN_SHARE = 8
LATENCY_RECORDS = 20
MEMORY_BYTES = (200_000_000, 2_000_000_000)
PARTITIONS = 4
FORMATS = {TIDELOG: "tidelog", CONNECTOR: "kafka"}
BOTH = (TIDELOG, CONNECTOR)


class TwoPhaseTidelog(Tidelog):
    """It lets a driver end what its tasks have written, which the exactly-once sink needs."""

    def command(self) -> list[str]:
        return [*super().command(), "--set", "transaction.two.phase.commit.enable=true"]


def missing() -> str | None:
    """Why Spark can't run here, or None."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "PySpark isn't installed: pip install tidelog[spark]"
    return None if java() else "there is no Java 17: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"


def missing_connector() -> str | None:
    """Why Spark's own connector can't be had here, or None."""
    try:
        connector_jars()
    except NoConnector as error:
        return str(error)
    return None


def read(bench: Bench, name: str, *, how: str, value_bytes: int, plain: bool = False) -> Metrics:
    """`plain`: decoded by plain Python, as on a machine without a C compiler."""
    stage = _stage(bench, plain=plain)
    rows = bench.count(ROWS[value_bytes] // (PLAIN_SHARE if plain else 1))
    topic = _filled(stage, value_bytes, rows, PARTITIONS)
    return stage.measure(how, rows, form=FORMATS[name], topic=topic)


def start(bench: Bench, name: str) -> Metrics:
    """A stream over four rows: what starting one takes, which is part of every figure of AvailableNow."""
    stage = _stage(bench)
    topic = _filled(stage, 100, PARTITIONS, PARTITIONS)
    return {"seconds": stage.ask("read-now", form=FORMATS[name], topic=topic, rows=PARTITIONS)["seconds"]}


def write(bench: Bench, name: str, *, plain: bool = False) -> Metrics:
    """Into a new topic each time; exactly once against at least once."""
    stage = _stage(bench, plain=plain)
    rows = bench.count(WRITTEN_ROWS // (PLAIN_SHARE if plain else 1))
    with stage.broker.topic(PARTITIONS) as topic:
        metrics = stage.measure("write", rows, form=FORMATS[name], topic=topic.name, value_bytes=100)
        stage.ask("count", topic=topic.name, rows=rows)
        return metrics


def latency(bench: Bench, name: str) -> Metrics:
    """A record at a time through source and sink; ours exactly once, with fsync as the broker's default has it."""
    stage = _stage(bench)
    records = max(5, int(LATENCY_RECORDS * bench.scale))
    with stage.broker.topic(1, fsync=True) as source, stage.broker.topic(1, fsync=True) as target:
        told = stage.ask("latency", form=FORMATS[name], source=source.name, target=target.name, records=records)
    del told["seconds"]
    return told


def memory(bench: Bench, name: str) -> Metrics:
    """The largest Python worker while a partition is read, by the partition's size."""
    stage, found = _stage(bench), {}
    for size in MEMORY_BYTES:
        rows = bench.count(size // 1000)
        topic = _filled(stage, 1000, rows, 1)
        with stage.watched() as seen:
            stage.ask("read-batch", form=FORMATS[name], topic=topic, rows=rows)
        found[f"worker_{size // 1_000_000}mb_mb"] = seen.worker_bytes / 1e6
    found["memory_growth"] = found["worker_2000mb_mb"] / found["worker_200mb_mb"]
    return found


def audited(bench: Bench, name: str) -> Metrics:
    """pipelines/audit.toml as it stands, run by `tidelog pipeline run` in its own process."""
    stage = _stage(bench)
    stage.end_player()  # a second JVM wants its memory
    metrics, lost_s = audit(stage.broker, bench.count(50_000_000), bench.work)
    stage.lost_s += lost_s
    return metrics


def lost_s(bench: Bench) -> float:
    """CPU of Spark's processes in this run that would look like other people's."""
    found = bench.kept.get("spark")
    return found.lost_s if isinstance(found, Stage) else 0.0


def _stage(bench: Bench, *, plain: bool = False) -> Stage:
    found = bench.kept.get("spark")
    if found is None:
        broker = bench.long_lived(TIDELOG, TwoPhaseTidelog)
        try:
            jars = connector_jars()
        except NoConnector:
            jars = []
        found = bench.kept["spark"] = Stage(broker, jars, Path(bench.work, "spark"))
        bench.ends.append(found.end)
    if not isinstance(found, Stage):
        raise BenchError("what is kept as spark is no stage")
    found.use(plain=plain)
    return found


def _filled(stage: Stage, value_bytes: int, rows: int, partitions: int) -> str:
    """A topic that is filled once a run."""
    name = f"rows-{value_bytes}-{rows}-{partitions}"
    if name not in stage.topics:
        stage.broker.create_topic(name, partitions)
        fill(stage.broker.at, name, value_bytes, rows, partitions)
        stage.topics.add(name)
    return name


CASES = (
    *(
        Case(
            f"spark-read-{label}-{short}",
            f"Spark reads {label} rows, {words}",
            partial(read, how=f"read-{short}", value_bytes=size),
            brokers=BOTH,
        )
        for size, label in ((100, "100b"), (1000, "1kb"))
        for short, words in (("batch", "as a batch"), ("now", "as a stream (AvailableNow)"))
    ),
    Case("spark-start", "a Spark stream (AvailableNow) over four rows", start, brokers=BOTH),
    Case(
        "spark-write-100b", "Spark writes 100 B rows, exactly once (the connector at least once)", write, brokers=BOTH
    ),
    Case("spark-latency", "one record through a micro-batch", latency, brokers=BOTH, rounds=1, warm=False),
    Case("spark-memory", "memory of a Spark reader", memory, brokers=(TIDELOG,), rounds=1, warm=False),
    Case(
        "spark-plain-read",
        "Spark reads 100b rows as a batch, without a C compiler",
        partial(read, how="read-batch", value_bytes=100, plain=True),
        brokers=(TIDELOG,),
        rounds=1,
    ),
    Case(
        "spark-plain-write",
        "Spark writes 100b rows, without a C compiler",
        partial(write, plain=True),
        brokers=(TIDELOG,),
        rounds=1,
    ),
    Case("spark-audit", "audit of 50 million rows", audited, brokers=(TIDELOG,), rounds=1, warm=False),
)
