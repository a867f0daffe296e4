"""The jars of Spark's own Kafka connector: from the cache, or once from Maven's registry."""

import os
import shutil
import subprocess
from pathlib import Path

ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
MAVEN_TIMEOUT_S = 300


class NoConnector(Exception):
    """The jars can't be had here, and what it would take."""


def connector_jars() -> list[str]:
    """Paths of the jars that run on PySpark 4.3; each is got without what it depends on, which Spark has itself."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog" / "spark-connector-4.2.0"
    if len(list(home.glob("*.jar"))) < len(ARTIFACTS):
        if shutil.which("mvn") is None:
            raise NoConnector("Spark's Kafka connector is fetched with Maven: install it (Debian: maven)")
        home.mkdir(parents=True, exist_ok=True)
        for artifact in ARTIFACTS:
            fetch(artifact, home)
    return sorted(str(jar) for jar in home.glob("*.jar"))


def fetch(artifact: str, home: Path) -> None:
    """One jar into a folder, without what it depends on; NoConnector where it can't be had."""
    goals = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={home}"]
    try:
        done = subprocess.run(
            ["mvn", "-q", "-B", *goals], capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoConnector(f"Maven took longer than {MAVEN_TIMEOUT_S} s for {artifact}") from None
    if done.returncode:
        raise NoConnector(f"Maven can't get {artifact}: {done.stdout[-300:]}")
