"""What is expected of Tidelog for bad group requests is what Apache Kafka answers: the same stories, told to it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.kafka.apache import ApacheKafka
from tests.stories.test_groups_bad_input import LIMITS

TOP = Path(__file__).parents[2]
STORIES = "tests/stories/test_groups_bad_input.py"


def test_kafka_gives_the_errors_that_are_expected_of_tidelog(jars: Path, tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "data", LIMITS) as kafka:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", STORIES],
            cwd=TOP,
            env={**os.environ, "BAD_INPUT_BOOTSTRAP": kafka.bootstrap},
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.returncode == 0, done.stdout[-3000:]
