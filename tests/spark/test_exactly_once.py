"""From topic to topics and lake, exactly once, while driver, executors and broker are killed -9 in turn.

`TIDELOG_EXACTLY_ONCE_RECORDS=1000000` makes it the story that is told in the docs. What each test kills, and where, is
in its name; the orders of steps that take no Spark to show are in test_decisions.py and test_exactly_once_drivers.py.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import java
from tests.spark.story import INPUT_PARTITIONS, Story, free_port
from tidelog.client import Admin
from tidelog.client.transactions import Transactions
from tidelog.testing import Broker

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(3000)]

RECORDS = int(os.environ.get("TIDELOG_EXACTLY_ONCE_RECORDS", "100000"))
MAX_TIMEOUT_MS = 5000
FIRST_STEP, LAST_STEP = 0, 11
"""A run's first commit: take over, list, end the last decision; describe and prepare; write, offset, end of it; each
end, list, abort."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    if java() is None:
        pytest.skip("Spark needs Java 17: apt-get install openjdk-17-jre-headless")
    pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")
    settings = {"transaction.two.phase.commit.enable": True, "transaction.max.timeout.ms": MAX_TIMEOUT_MS}
    with Broker(settings, listen=f"127.0.0.1:{free_port()}", data=tmp_path / "data") as broker:
        Admin(broker.bootstrap).create_topic("numbers", INPUT_PARTITIONS)
        yield broker


@pytest.fixture
def story(tmp_path: Path, broker: Broker) -> Iterator[Story]:
    story = Story(tmp_path, broker, RECORDS, "local[2,4]")  # a task may fail, as on a cluster
    story.fill()
    yield story
    if story.driver is not None and story.driver.poll() is None:
        story.kill_driver()


def test_driver_worker_and_broker_are_killed_in_turn(story: Story) -> None:
    story.start()
    story.wait_for_batches(2)
    story.kill_driver()
    story.start()
    story.wait_for_batches(2)
    story.broker.kill()
    story.broker.start()
    story.wait_for_batches(2)
    story.kill_worker()
    story.wait_for_batches(2)
    story.kill_driver()
    story.finish()
    story.check()
    assert open_transactions(story) == []


def test_the_driver_is_killed_between_any_two_steps_of_its_commit(story: Story) -> None:
    for step in range(FIRST_STEP, LAST_STEP + 1):
        story.start(step=step)
        story.wait_for_stop()
        story.kill_driver()
    story.finish()
    story.check()
    assert open_transactions(story) == []


def test_a_driver_may_be_away_for_longer_than_transactions_may_last_and_find_other_partitions(story: Story) -> None:
    story.start(step=0)  # tasks have written, nothing is decided
    story.wait_for_stop()
    story.kill_driver()
    assert open_transactions(story)
    time.sleep(2 * MAX_TIMEOUT_MS / 1000)
    assert open_transactions(story), "a transaction was ended by time"
    admin = Admin(story.broker.bootstrap)
    admin.add_partitions("copied", 5)
    admin.add_partitions("numbers", INPUT_PARTITIONS + 1)
    story.write_file(spark='"spark.sql.shuffle.partitions" = "3"', source='options = { minPartitions = "7" }')
    story.start(step=8)  # decided, and none of its transactions has ended
    story.wait_for_stop()
    story.kill_driver()
    time.sleep(1.5 * MAX_TIMEOUT_MS / 1000)
    admin.add_partitions("copied", 6)
    story.write_file()
    story.finish()
    story.check()
    assert open_transactions(story) == []


def open_transactions(story: Story) -> list[str]:
    with Transactions(story.broker.bootstrap) as transactions:
        return [each.name for each in transactions.all(["Ongoing"])]
