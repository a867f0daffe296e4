"""A pipeline whose file changed so that it doesn't fit its state: told before it runs, told when it does, and reset."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, Producer, read
from tidelog.spark.pipeline.file.check import PipelineError
from tidelog.spark.pipeline.file.model import load
from tidelog.spark.pipeline.reset import reset
from tidelog.spark.pipeline.run.runner import QueryFailed, check, run
from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]

counter = iter(range(1000))
SUMS = "select customer, sum(amount) as worth from orders group by customer"
COUNTS = "select customer, sum(amount) as worth, count(*) as orders from orders group by customer"
FILE = """name = "sums"
state = "state"

[source.orders]
topics = ["{topic}"]
decode = "json"
schema = "id long, customer string, amount double"

[bad_rows]
drop = true

[[step]]
name = "sums"
sql = "{sql}"

[[sink]]
from = "sums"
mode = "update"
topic = "{topic}-sums"
name = "sums"
partitions = 1
"""
LAKE = """
[[sink]]
from = "orders"
path = "lake"
"""


class Story:
    """A topic of orders, and a pipeline that sums them up."""

    def __init__(self, spark: Any, broker: Broker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.topic = f"reset-{next(counter)}"
        self.file = folder / "sums.toml"
        Admin(broker.bootstrap).create_topic(self.topic, 1)

    def send(self, *numbers: int) -> None:
        with Producer(self.broker.bootstrap) as producer:
            for number in numbers:
                row = {"id": number, "customer": f"c{number % 2}", "amount": number}
                producer.send(self.topic, json.dumps(row).encode())

    def write(self, sql: str, more: str = "") -> None:
        self.file.write_text(FILE.format(topic=self.topic, sql=sql) + more)

    def run(self) -> None:
        run(load(self.file, self.broker.bootstrap), self.spark, once=True, tell=lambda _: None)

    def check(self) -> None:
        check(load(self.file, self.broker.bootstrap), self.spark)

    def reset(self, sink: str, start: str | None = None) -> None:
        reset(load(self.file, self.broker.bootstrap), sink, start)

    def sums(self) -> list[dict[str, Any]]:
        """What a reader of the topic has of each customer, with the last batch last."""
        messages = read(self.broker.bootstrap, f"{self.topic}-sums", stop_at_end=True, isolation_level="read_committed")
        return sorted((json.loads(each.value or b"") for each in messages), key=lambda row: row["customer"])

    def lake(self) -> Counter[int]:
        return Counter(row.id for row in self.spark.read.parquet(str(self.folder / "lake")).collect())


@pytest.fixture
def story(spark: Any, broker: Broker, tmp_path: Path) -> Story:
    return Story(spark, broker, tmp_path)


def test_a_check_holds_the_file_against_the_state(story: Story) -> None:
    story.send(1, 2, 3)
    story.write(SUMS)
    story.run()
    story.write(SUMS.replace("worth", "value"))  # other names, the same state
    story.check()
    story.write(COUNTS)
    with pytest.raises(PipelineError) as raised:
        story.check()
    problem = str(raised.value)
    assert problem.startswith(
        f"{story.file}:16: sink sums no longer fits its state in {story.folder}/state/checkpoints/"
    )
    assert "that has stateStoreSave of (string) with (double), and the file makes stateStoreSave of (string) with " in (
        problem
    )
    assert f"`tidelog pipeline reset {story.file} --sink sums` has it begin anew" in problem
    story.reset("sums")
    story.check()


@pytest.mark.long
def test_a_sink_that_no_longer_fits_its_state_begins_anew(story: Story) -> None:
    story.send(1, 2, 3, 4)
    story.write(SUMS, LAKE)
    story.run()
    story.send(5)
    story.write(COUNTS, LAKE)
    with pytest.raises(QueryFailed, match=r"sums: sums: \[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE\]") as raised:
        story.run()
    assert f"`tidelog pipeline reset {story.file} --sink sums` has it begin anew" in raised.value.advice
    story.reset("sums")
    story.run()
    assert story.sums() == [
        {"customer": "c0", "worth": 6.0},
        {"customer": "c0", "worth": 6.0, "orders": 2},
        {"customer": "c1", "worth": 4.0},
        {"customer": "c1", "worth": 9.0, "orders": 3},
    ]
    assert story.lake() == Counter(range(1, 6))  # the other sink went on where it was


@pytest.mark.long
def test_where_a_sink_begins_anew_is_its_own_and_nothing_of_it_is_taken_for_a_repetition(story: Story) -> None:
    story.send(1, 2)
    story.write(SUMS, LAKE)
    story.run()
    story.reset("lake", "latest")
    story.run()
    story.send(3)
    story.run()
    assert story.lake() == Counter([1, 2, 3])
    story.reset("lake")
    story.run()
    assert story.lake() == Counter([1, 2, 3, 1, 2, 3])
    assert [row["worth"] for row in story.sums()] == [2.0, 1.0, 4.0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SUMS, "select customer, amount from orders"),
        ("select customer, amount from orders", SUMS),
        (SUMS, "select customer, amount from orders union all select customer, amount from orders"),
        (SUMS, SUMS.replace("group by", "group by id,")),
    ],
)
def test_what_spark_says_of_a_checkpoint_of_another_query_is_known(story: Story, before: str, after: str) -> None:
    story.send(1, 2)
    story.write(before)
    story.run()
    story.send(3)
    story.write(after)
    with pytest.raises(PipelineError, match="no longer fits its state"):
        story.check()
    with pytest.raises(QueryFailed) as raised:
        story.run()
    assert "tidelog pipeline reset" in raised.value.advice, raised.value
