"""What a batch is known by, in a real Spark: other rows under a known name are refused, never dropped unsaid."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import JVM_TIMEOUT_S
from tests.spark.test_sink import committed
from tidelog.client import Admin, Producer
from tidelog.spark.pipeline.file.model import load
from tidelog.spark.pipeline.run.runner import run
from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]


@pytest.fixture
def write(spark: Any, broker: Broker) -> Callable[..., None]:
    """A job that writes numbers to a topic."""

    def job(first: int, end: int, topic: str, **options: str) -> None:
        rows = spark.range(first, end).selectExpr("cast(id as string) as value")
        writing = rows.write.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        writing.option("topic", topic).options(**options).mode("append").save()

    return job


def numbers(first: int, end: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(first, end))


def test_a_job_that_comes_again_with_other_rows_fails_and_says_so(broker: Broker, write: Callable[..., None]) -> None:
    Admin(broker.bootstrap).create_topic("nightly", 2)
    write(0, 20, "nightly", jobId="nightly")
    write(0, 20, "nightly", jobId="nightly")
    with pytest.raises(
        Exception,
        match=r"batch 0 of job nightly to topic nightly was committed before on .* UTC, but this one has 30 rows and "
        r"that one had 20. Nothing of this one is written. Rows of their own take another jobId, or a higher jobBatch",
    ):
        write(0, 30, "nightly", jobId="nightly")
    with pytest.raises(Exception, match=r"but this one has other rows, 20 as well\. Nothing of this one is written"):
        write(20, 40, "nightly", jobId="nightly")
    assert committed(broker, "nightly") == numbers(0, 20)
    write(20, 40, "nightly", jobId="nightly", jobBatch="1")
    assert committed(broker, "nightly") == numbers(0, 40)


def test_one_job_id_writes_to_two_topics(broker: Broker, write: Callable[..., None]) -> None:
    for topic in ("first-target", "second-target"):
        Admin(broker.bootstrap).create_topic(topic, 2)
        write(0, 20, topic, jobId="both")
        write(0, 20, topic, jobId="both")
    assert committed(broker, "first-target") == committed(broker, "second-target") == numbers(0, 20)


def test_a_query_of_its_own_writes_under_a_job_id_that_another_had(spark: Any, broker: Broker, tmp_path: Path) -> None:
    Admin(broker.bootstrap).create_topic("each-in", 2)
    Admin(broker.bootstrap).create_topic("each-out", 2)
    with Producer(broker.bootstrap) as producer:
        for number in range(20):
            producer.send("each-in", b"%d" % number)

    def each(rows: Any, batch: int) -> None:
        writing = rows.write.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        writing = writing.option("topic", "each-out").option("jobId", "each").option("jobBatch", str(batch))
        writing.mode("append").save()

    def query(computed: str) -> None:
        reading = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        rows = reading.option("subscribe", "each-in").option("startingOffsets", "earliest").load()
        writing = rows.selectExpr(computed).writeStream.foreachBatch(each)
        writing.option("checkpointLocation", str(tmp_path / "state")).trigger(
            availableNow=True
        ).start().awaitTermination()

    query("value")
    (tmp_path / "state" / "commits" / "0").unlink()  # as after a crash between the sink's commit and Spark's
    (tmp_path / "state" / "commits" / ".0.crc").unlink(missing_ok=True)
    query("value")
    assert committed(broker, "each-out") == numbers(0, 20)
    shutil.rmtree(tmp_path / "state")
    query("concat('again-', cast(value as string)) as value")
    assert committed(broker, "each-out") == sorted([*numbers(0, 20), *(b"again-" + each for each in numbers(0, 20))])


@pytest.mark.long
def test_other_rows_of_the_same_offsets_are_refused_and_a_repetition_after_a_crash_is_not(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    for topic in ("copied-in", "copied-out"):
        Admin(broker.bootstrap).create_topic(topic, 1)

    def send(*numbers: int) -> None:
        with Producer(broker.bootstrap) as producer:
            for number in numbers:
                producer.send("copied-in", b"%d" % number)

    def query(state: Path, computed: str, where: str = "true") -> None:
        reading = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        rows = reading.option("subscribe", "copied-in").option("startingOffsets", "earliest").load().where(where)
        writing = rows.selectExpr(f"{computed} as value").writeStream.format("tidelog")
        writing = writing.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "copied-out")
        writing.option("checkpointLocation", str(state)).trigger(availableNow=True).start().awaitTermination()

    def cut(state: Path, *logs: str) -> None:
        for log in logs:
            last = max((state / log).glob("[0-9]*"), key=lambda file: int(file.name))
            last.unlink()
            (last.parent / f".{last.name}.crc").unlink(missing_ok=True)

    state, copy = tmp_path / "state", tmp_path / "copy"
    send(1, 2)
    query(state, "value")
    shutil.copytree(state, copy)
    send(3, 4)
    query(state, "value", "value = '4'")
    with pytest.raises(Exception, match="planned anew, and has other rows, 1 as well"):
        query(copy, "value", "value = '3'")
    cut(state, "commits")  # as after a crash: Spark repeats what it planned
    query(state, "cast(rand() as string)")
    cut(state, "commits", "offsets")
    with pytest.raises(Exception, match="planned anew, and has 2 rows and that one had 1"):
        query(state, "concat('fixed-', cast(value as string))")
    assert committed(broker, "copied-out") == [b"1", b"2", b"4"]


FILE = """
name = "anew"
state = "state"
bootstrap = "{bootstrap}"

[source.orders]
topics = ["anew-in"]
decode = "json"
schema = "customer string, amount long"
from = "earliest"

[bad_rows]
topic = "anew-bad"
partitions = 1

[[step]]
name = "sums"
sql = "{sql}"

[[sink]]
from = "sums"
topic = "anew-out"
partitions = 1
mode = "update"
"""


def test_a_pipeline_whose_checkpoint_was_removed_writes_what_it_reads(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    Admin(broker.bootstrap).create_topic("anew-in", 2)
    with Producer(broker.bootstrap) as producer:
        for number in range(40):
            producer.send("anew-in", b'{"customer":"c%d","amount":%d}' % (number % 4, number))
        producer.send("anew-in", b"{not json")
    file = tmp_path / "anew.toml"

    def once(sql: str) -> None:
        file.write_text(FILE.format(bootstrap=broker.bootstrap, sql=sql))
        run(load(file), spark, once=True, tell=lambda text: None)

    once("select customer, sum(amount) as amount from orders group by customer")
    assert len(committed(broker, "anew-out")) == 4
    shutil.rmtree(tmp_path / "state" / "checkpoints")
    once("select customer, amount from orders where amount >= 10")
    rows = [json.loads(value) for value in committed(broker, "anew-out")]
    assert sorted(row["amount"] for row in rows) == sorted([*range(10, 40), 180, 190, 200, 210])
    assert committed(broker, "anew-bad") == [b"{not json"] * 2
