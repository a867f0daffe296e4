"""`python -m bench.spark_player`: a Spark driver that does what it is told, one JSON line in, one JSON line out.

In a process of its own, so that its CPU can be counted with that of the JVM and the Python workers below it, and so
that one without the compiled decoder can stand beside one with it.
"""

import json
import os
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

CONSUMER_TIMEOUT_S = 30.0
PAUSE_S = 0.3
COUNTED: set[tuple[str, str]] = set()
"""Which topics were counted by which format: each once, and in no measured time."""

Answer = dict[str, float]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = _spark(sys.argv[1] if len(sys.argv) > 1 else "")
    _tell(answers, {})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            told: dict[str, Any] = ACTIONS[asked.pop("do")](spark, **asked)
        except Exception as error:  # whatever it is, the bench shows it and goes on
            told = {"error": f"{type(error).__name__}: {error}"}
        _tell(answers, told)
    jvm = spark.sparkContext._gateway.proc  # noqa: SLF001  PySpark doesn't give it away, and never waits for it
    spark.stop()
    jvm.stdin.close()
    jvm.wait()  # or its CPU would be counted as somebody else's


def _tell(answers: TextIO, told: dict[str, Any]) -> None:
    answers.write(json.dumps(told) + "\n")
    answers.flush()


def _spark(jars: str) -> Any:
    from pyspark.sql import SparkSession

    building = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    building = building.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "3g")
    building = building.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    if jars:
        building = building.config("spark.jars", jars)
    spark = building.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def read_batch(spark: Any, form: str, bootstrap: str, topic: str, rows: int) -> Answer:
    """A topic to nowhere, every column of it."""
    table = spark.read.format(form).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
    began = time.monotonic()
    table.write.format("noop").mode("overwrite").save()
    seconds = time.monotonic() - began
    if (form, topic) not in COUNTED:  # by the round that warms
        read = table.count()
        assert read == rows, f"{form} read {read} rows of {rows}"
        COUNTED.add((form, topic))
    return {"seconds": seconds}


def count(spark: Any, bootstrap: str, topic: str, rows: int) -> Answer:
    """That a topic holds what was written to it, no more and no less."""
    table = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    found = table.load().count()
    assert found == rows, f"{topic} holds {found} rows, {rows} were written"
    return {"seconds": 0.0}


def read_now(spark: Any, form: str, bootstrap: str, topic: str, rows: int) -> Answer:
    """The same as a stream that ends when it has what was there."""
    reading = spark.readStream.format(form).option("kafka.bootstrap.servers", bootstrap)
    table = reading.option("subscribe", topic).option("startingOffsets", "earliest").load()
    folder = tempfile.mkdtemp(prefix="tidelog-bench-")
    try:
        began = time.monotonic()
        writing = table.writeStream.format("noop").option("checkpointLocation", str(Path(folder, "checkpoint")))
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.monotonic() - began
        read = sum(each["numInputRows"] for each in query.recentProgress)
        assert read == rows, f"{form} read {read} rows of {rows}"
        return {"seconds": seconds}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write(spark: Any, form: str, bootstrap: str, topic: str, rows: int, value_bytes: int) -> Answer:
    """Ours exactly once, under a job's id; the connector's at least once, which is all it has."""
    value = f"rpad(cast(id as string), {value_bytes}, 'x') as value"
    made = spark.range(0, rows, 1, 4).selectExpr("cast(id as string) as key", value)
    writing = made.write.format(form).option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    if form == "tidelog":
        writing = writing.option("jobId", secrets.token_hex(8))
    began = time.monotonic()
    writing.mode("append").save()
    return {"seconds": time.monotonic() - began}


def latency(spark: Any, form: str, bootstrap: str, source: str, target: str, records: int) -> Answer:
    """One record at a time through source and sink: from `produce` until a reader of committed records has it."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    folder = tempfile.mkdtemp(prefix="tidelog-bench-")
    reading = spark.readStream.format(form).option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    writing = reading.load().selectExpr("key", "value").writeStream.format(form).option("topic", target)
    writing = writing.option("kafka.bootstrap.servers", bootstrap)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed"})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    query = writing.option("checkpointLocation", str(Path(folder, "checkpoint"))).start()
    try:
        ends = consumer.list_topics(target).topics[target].partitions
        places = [TopicPartition(target, index) for index in ends]
        consumer.assign(
            [TopicPartition(target, each.partition, consumer.get_watermark_offsets(each)[1]) for each in places]
        )
        while not query.recentProgress and query.isActive:
            time.sleep(PAUSE_S)
        times: list[float] = []
        for number in range(-2, records):  # two that warm
            value = b"%s-%d" % (folder.encode(), number)
            began = time.monotonic()
            producer.produce(source, value, key=value)
            producer.flush()
            _await(consumer, value, query)
            if number >= 0:
                times.append((time.monotonic() - began) * 1000)
            time.sleep(PAUSE_S)
        parts = [each["durationMs"] for each in query.recentProgress if each["numInputRows"]][-records:]
        told = {"seconds": sum(times) / 1000, "latency_ms": statistics.median(times), "latency_max_ms": max(times)}
        for name, key in PARTS.items():
            told[name] = statistics.median(each.get(key, 0) for each in parts)
        return told
    finally:
        query.stop()
        consumer.close()
        shutil.rmtree(folder, ignore_errors=True)


PARTS = {
    "trigger_ms": "triggerExecution",
    "planning_ms": "queryPlanning",
    "running_ms": "addBatch",
    "log_ms": "walCommit",
    "commit_ms": "commitOffsets",
}
"""What Spark itself tells of a micro-batch: the whole, and its parts."""


def _await(consumer: Any, value: bytes, query: Any) -> None:
    deadline = time.monotonic() + CONSUMER_TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None and message.value() == value:
            return
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
    raise TimeoutError(f"no result in {CONSUMER_TIMEOUT_S:g} s; {query.status}, {query.exception()}")


ACTIONS: dict[str, Callable[..., Answer]] = {
    "read-batch": read_batch,
    "read-now": read_now,
    "write": write,
    "count": count,
    "latency": latency,
}

if __name__ == "__main__":
    main()
