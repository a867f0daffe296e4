"""The clients of a run: what each is to do, their processes, and their diaries in the end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.kafka.jars import JarsMissingError, find_jars
from tools.chaos.cluster import Topic
from tools.chaos.history import Diary, Place, read_diary

STEADY, MIXED, COPY = Topic("steady", 4), Topic("mixed", 3), Topic("copy", 3)
PAIR = [Topic("debits", 2), Topic("credits", 2)]
TOPICS = [STEADY, MIXED, COPY, *PAIR]

STEADY_PRODUCER = "steady"
"""The one whose acknowledgements are timed."""
STEADY_PER_S = 200.0
STAY_S = 20.0
PRODUCERS = (STEADY_PRODUCER, "aio", "payments", "java")
GROUPS = {"readers": [STEADY], "watchers": [STEADY, MIXED], "copiers": [MIXED]}
"""What each one reads."""
COPIERS = {"copiers": COPY.name}
JAVA_SOURCE = Path(__file__).with_name("clients") / "ChaosClient.java"
JAVA_OPTIONS = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
JAVA_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
DIARY = ".diary"
STILL_S = 30.0
TAIL_BYTES = 1 << 17
LATELY_S = 0.5
STOP_S = 150.0
"""Longer than a producer's patience."""
SAID_LINES = 8


class Load:
    """Started together; producers end first, so that readers can reach what they wrote."""

    def __init__(self, folder: Path, bootstrap: str, seed: int, *, java: bool) -> None:
        self.folder = folder
        self.java = "not wanted"
        """Whether there is a Java client, or why there is none."""
        self._bootstrap = bootstrap
        self._seed = seed
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.failures: list[str] = []
        self.replaced: list[str] = []
        """Copiers whose library stood still."""
        self._over = threading.Event()
        folder.mkdir()
        self._command = self._java() if java else None

    def _java(self) -> list[str] | None:
        """The compiled client; None where that can't be had, with the reason."""
        try:
            jars = find_jars()
        except JarsMissingError as error:
            self.java = str(error)
            return None
        classes = self.folder / "classes"
        compile = ["javac", "-cp", f"{jars}/*", "-d", str(classes), str(JAVA_SOURCE)]
        try:
            subprocess.run(compile, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.java = f"it could not be compiled: {error}"
            return None
        self.java = "Apache Kafka's own"
        return ["java", *JAVA_OPTIONS, JAVA_QUIET, "-cp", f"{classes}:{jars}/*", "ChaosClient"]

    def start(self) -> None:
        pair = {topic.name: topic.partitions for topic in PAIR}
        both = {topic.name: topic.partitions for topic in (STEADY, MIXED)}
        produced = {"topic": STEADY.name, "partitions": STEADY.partitions, "per_second": STEADY_PER_S}
        self._python("producer", STEADY_PRODUCER, **produced)
        reads = {"name": "aio-member", "diary": self._diary("aio-member"), "group": "readers", "topics": [STEADY.name]}
        self._python("aio", "aio", topic=MIXED.name, partitions=MIXED.partitions, per_second=40, reads=reads)
        self._python("transactions", "payments", topics=pair, per_second=5)
        self._copy("copier")
        threading.Thread(target=self._watch_copier, daemon=True).start()
        member = {"read_committed": False, "stay_s": STAY_S}
        self._python("reader", "member", group="readers", protocol="classic", topics={STEADY.name: 0}, **member)
        self._python("reader", "watcher", group="watchers", protocol="consumer", topics=both, **member)
        self._python("reader", "auditor", group=None, topics=pair, read_committed=True)
        if self._command is not None:
            arguments = [self._bootstrap, str(self.folder), MIXED.name, str(MIXED.partitions), "40"]
            arguments += ["watchers", STEADY.name, "copiers", MIXED.name, COPY.name]
            self._launch("java", [*self._command, *arguments])

    def check(self) -> None:
        """Notice who ended too soon."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                self._failed(name, f"ended with code {process.returncode} too soon")

    def until_acknowledged(self, timeout_s: float) -> list[str]:
        """Until the steady producer was told of records in every partition lately; where it wasn't within the time.
        Replicas in sync don't say that: after a split TCP itself waits for longer and longer before it tries again."""
        deadline = time.monotonic() + timeout_s
        while True:
            last = last_acked(Path(self._diary(STEADY_PRODUCER)))
            now_s = time.monotonic()
            silent = [one for one in range(STEADY.partitions) if now_s - last.get((STEADY.name, one), 0) > LATELY_S]
            if not silent or now_s > deadline:
                return [f"nothing is acknowledged in {STEADY.name}-{one}" for one in silent]
            time.sleep(0.1)

    def stop_producers(self) -> None:
        """And whoever shares a process with one; a member of each group stays, and goes on to the end."""
        self._stop([name for name in PRODUCERS if name in self._processes])

    def stop(self) -> None:
        self._over.set()
        self._stop(list(self._processes))

    def kill(self) -> None:
        self._over.set()
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _copy(self, name: str) -> None:
        wanted = {"group": "copiers", "topics": [MIXED.name], "target": COPY.name, "transactional_id": "copier"}
        self._python("copier", name, **wanted)

    def _watch_copier(self) -> None:
        """As a supervisor does: one that stands still is killed, and another one of its transactional id goes on. A
        call of librdkafka's in a transaction may never end, whatever its timeout, when brokers come and go."""
        name = "copier"
        while not self._over.wait(1.0):
            diary = Path(self._diary(name))
            if not diary.exists() or time.time() - diary.stat().st_mtime < STILL_S or self._over.is_set():
                continue
            process = self._processes.pop(name)
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)
            process.kill()
            process.wait()
            where = (self.folder / f"{name}.out").read_text(errors="replace").strip().splitlines()[1:2]
            self.replaced.append(f"{name} stood still for {STILL_S:.0f} s{''.join(where)}, and was replaced")
            name = f"copier-{len(self.replaced) + 1}"
            self._copy(name)

    def diaries(self) -> list[Diary]:
        return [read_diary(path) for path in sorted(self.folder.glob(f"*{DIARY}"))]

    def _stop(self, names: list[str]) -> None:
        for name in names:
            process = self._processes[name]
            if process.stdin is not None:
                process.stdin.close()
            if name != "java":
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for name in names:
            process = self._processes.pop(name)
            try:
                code = process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT if name == "java" else signal.SIGUSR1)
                time.sleep(1)
                process.kill()
                process.wait()
                self._failed(name, f"did not end within {STOP_S:.0f} s")
                continue
            if code:
                self._failed(name, f"ended with code {code}")

    def _failed(self, name: str, what: str) -> None:
        said = (self.folder / f"{name}.out").read_text(errors="replace").strip().splitlines()[-SAID_LINES:]
        failure = f"client {name} {what}: " + " | ".join(said)
        if failure not in self.failures:
            self.failures.append(failure)

    def _diary(self, name: str) -> str:
        return str(self.folder / f"{name}{DIARY}")

    def _python(self, module: str, name: str, **wanted: Any) -> None:
        told = {"bootstrap": self._bootstrap, "name": name, "diary": self._diary(name), "seed": self._seed, **wanted}
        self._launch(name, [sys.executable, "-m", f"tools.chaos.clients.{module}", json.dumps(told)])

    def _launch(self, name: str, command: list[str]) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TIDELOG_")}
        with open(self.folder / f"{name}.out", "wb") as output:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment
            )


def last_acked(diary: Path) -> dict[Place, float]:
    """When the last record of each partition was acknowledged, as far as the end of a diary tells."""
    with open(diary, "rb") as file:
        file.seek(max(diary.stat().st_size - TAIL_BYTES, 0))
        lines = file.read().splitlines()[1:-1]
    last: dict[Place, float] = {}
    for line in lines:
        if b'"acked"' in line:
            told = json.loads(line)
            last[told["place"][0], told["place"][1]] = told["at"]
    return last
