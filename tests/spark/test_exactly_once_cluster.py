"""Exactly once on a real cluster: its executors are killed -9, and slow tasks are tried on another one meanwhile.

`TIDELOG_EXACTLY_ONCE_RECORDS` says with how many records, as in test_exactly_once.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.standalone import Standalone, kill
from tests.spark.story import Story
from tests.spark.test_exactly_once import RECORDS, broker, open_transactions
from tidelog.testing import Broker

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(3000)]

__all__ = ["broker"]  # a fixture


@pytest.fixture
def cluster(tmp_path: Path, broker: Broker) -> Iterator[Standalone]:
    with Standalone(tmp_path, workers=2, cores=2, memory="1g") as cluster:
        yield cluster


def test_driver_executor_and_broker_are_killed_in_turn(tmp_path: Path, broker: Broker, cluster: Standalone) -> None:
    story = Story(tmp_path, broker, RECORDS, cluster.master_url)
    story.environment = cluster.environment
    story.write_file(spark='"spark.executor.memory" = "700m"', source='options = { minPartitions = "4" }')
    story.fill()
    try:
        story.start()
        story.wait_for_batches(2)
        story.kill_driver()
        story.start()
        story.wait_for_batches(2)
        cluster.kill_executor(cluster.executors()[0])
        story.wait_for_batches(2)
        story.broker.kill()
        story.broker.start()
        story.wait_for_batches(2)
        kill(cluster.python_workers()[-1])
        story.kill_driver()
        story.finish()
        story.check()
        assert open_transactions(story) == []
    finally:
        if story.driver is not None and story.driver.poll() is None:
            story.kill_driver()


SPECULATION = """
"spark.executor.memory" = "700m"
"spark.speculation" = "true"
"spark.speculation.interval" = "100ms"
"spark.speculation.multiplier" = "1.1"
"spark.speculation.quantile" = "0.5"
"spark.speculation.minTaskRuntime" = "200ms"
"""


def test_slow_tasks_are_tried_twice_and_count_once(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(tmp_path, broker, RECORDS)
    twice = tmp_path / "twice"
    twice.mkdir()
    for name, value in story.injected({"slow": str(twice)}).items():  # executors have what their workers have
        monkeypatch.setenv(name, value)
    with Standalone(tmp_path, workers=2, cores=2, memory="1g") as cluster:
        story.master = cluster.master_url
        story.environment = cluster.environment
        story.write_file(spark=SPECULATION, source='options = { minPartitions = "4" }', batches=3)
        story.fill()
        story.finish()
        assert len(list(twice.iterdir())) >= 3, "Spark tried no task twice"
        story.check()
        assert open_transactions(story) == []
