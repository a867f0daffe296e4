"""Apache Kafka's jars: from a folder that is named, from the cache, or once from Maven's registry."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

KAFKA_VERSION = "4.3.1"
MAVEN_TIMEOUT_S = 600
# The last one lets Kafka say on stderr why it would not start.
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)

_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


class JarsMissingError(Exception):
    """Apache Kafka's jars can't be had here; the message says what it would take."""


def find_jars() -> Path:
    """The folder with Kafka's jars, filled on the first call. JarsMissingError where that can't be done.

    `TIDELOG_KAFKA_JARS` names a folder to use as it is. The cache is filled in a folder of its own and renamed, under
    a lock, so that parallel test processes neither see half of it nor do the work twice.
    """
    if shutil.which("java") is None:
        raise JarsMissingError("Apache Kafka needs Java 17 or newer: install one (Debian: openjdk-17-jre-headless)")
    named = os.environ.get("TIDELOG_KAFKA_JARS")
    if named:
        folder = Path(named)
        if not any(folder.glob("kafka_2.13-*.jar")):
            raise JarsMissingError(
                f"TIDELOG_KAFKA_JARS={named} holds no kafka_2.13 jar: name a folder with Kafka's jars"
            )
        return folder
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog"
    cache = home / f"kafka-{KAFKA_VERSION}"
    if cache.is_dir():
        return cache
    if shutil.which("mvn") is None:
        raise JarsMissingError(
            f"Apache Kafka {KAFKA_VERSION}'s jars are fetched with Maven: install it (Debian: maven), "
            "or name a folder that holds them in TIDELOG_KAFKA_JARS"
        )
    home.mkdir(parents=True, exist_ok=True)
    with open(home / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cache.is_dir():
            _fetch(cache)
    return cache


def kafka_jars() -> Path:
    """As `find_jars`; the test that asked is skipped, with the reason, where they can't be had."""
    try:
        return find_jars()
    except JarsMissingError as error:
        pytest.skip(str(error))


def _fetch(cache: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache.parent) as work:
        jars = Path(work) / "jars"
        dependencies = "".join(_DEPENDENCY.format(*artifact) for artifact in ARTIFACTS)
        (Path(work) / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>tidelog</groupId><artifactId>kafka-jars</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise JarsMissingError(f"Maven took over {MAVEN_TIMEOUT_S} s to fetch Apache Kafka's jars") from None
        if done.returncode or not any(jars.glob("kafka_2.13-*.jar")):
            said = (done.stdout + done.stderr).strip().splitlines()
            raise JarsMissingError(
                "Maven could not fetch Apache Kafka's jars (it needs its registry, or TIDELOG_KAFKA_JARS): "
                + (said[0] if said else f"exit code {done.returncode}")
            )
        jars.rename(cache)
