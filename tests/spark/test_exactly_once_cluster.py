"""Exactly once on a real cluster: executors are killed -9, and slow tasks are run twice at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.standalone import Standalone
from tests.spark.story import Story
from tests.spark.test_exactly_once import broker, open_transactions
from tidelog.testing import Broker

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(3000)]

__all__ = ["broker"]  # a fixture

RECORDS = 20_000
STRAGGLE_S = 6
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.executor.memory": "700m",
    "spark.locality.wait": "0s",
}


@pytest.fixture
def cluster(tmp_path: Path, broker: Broker) -> Iterator[Standalone]:
    with Standalone(tmp_path, workers=2, cores=2, memory="1g") as cluster:
        yield cluster


def test_executors_are_killed_and_slow_tasks_run_twice(tmp_path: Path, broker: Broker, cluster: Standalone) -> None:
    story = Story(tmp_path, broker, RECORDS, cluster.master_url)
    story.environment = cluster.environment
    injected = story.injected({"straggle_s": STRAGGLE_S})
    settings = SPECULATION | {f"spark.executorEnv.{name}": value for name, value in injected.items()}
    story.write_file(spark="\n".join(f"{name!r} = {value!r}" for name, value in settings.items()), batches=4)
    story.fill()
    try:
        story.start()
        story.wait(story.marker.exists, "a slow task is run twice")
        cluster.kill_executor(cluster.executors()[0])
        story.wait_for_batches()
        for pid in cluster.python_workers()[-1:]:
            cluster.kill_executor(pid)
        story.wait_for_batches()
        story.kill_driver()
        story.finish()
        story.check()
        assert open_transactions(story) == []
    finally:
        if story.driver is not None and story.driver.poll() is None:
            story.kill_driver()
