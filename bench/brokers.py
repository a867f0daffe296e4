"""The three that are measured: the floor, Tidelog, Apache Kafka. Started, given a topic, stopped, killed."""

import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka.apache import CLUSTER_ID, free_port, serves

from bench.programs import BenchError, Programs
from bench.requests import FLOOR_TOPIC, FLOOR_TOPIC_ID, floor_answers

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 90.0
ADMIN_TIMEOUT_S = 120.0
POLL_S = 0.002

FLOOR, TIDELOG, KAFKA = "floor", "tidelog", "kafka"

KAFKA_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
# What Kafka's own start script gives to the JVM.
KAFKA_JVM = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
]
# On both: files of deleted topics go at once, and are waited for, so that no round pays for the one before. Compaction
# looks often, so that the time until it looks is none of the figure.
SHARED_SETTINGS = {"log.segment.delete.delay.ms": "1", "log.cleaner.backoff.ms": "100"}


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes


class Broker(ABC):
    """A broker on a folder of its own. The port is kept over a restart, so that clients come back."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: Mapping[str, str] = {}
        """Beside SHARED_SETTINGS, where a case needs them; set before the first start."""
        self.port = free_port()
        self.output = folder.parent / f"{folder.name}.out"
        self.process: subprocess.Popen[bytes] | None = None
        self._topics = count()
        self._admin: AdminClient | None = None

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def topic_config(self, *, fsync: bool) -> Mapping[str, str]: ...

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} isn't started"
        return self.process.pid

    @property
    def at(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.at, "log_level": 2, "socket.timeout.ms": 120000})
        return self._admin

    def prepare(self) -> None:
        """What comes once before the first start, and doesn't count as starting."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> float:
        """Start; the seconds until a client was served."""
        if not self.folder.exists():
            self.prepare()
        with open(self.output, "ab") as output:
            began = time.monotonic()
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self._wait_until(lambda: serves(self.port), began)
        return time.monotonic() - began

    def stop(self) -> float:
        """Stop cleanly; the seconds that it took."""
        process, self.process = self.process, None
        if process is None:
            return 0.0
        self._admin = None
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return time.monotonic() - began

    def kill(self) -> None:
        """kill -9."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def remove(self) -> None:
        """Kill it and remove what it wrote."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def topic(self, partitions: int = 1, *, fsync: bool = False) -> Iterator[Topic]:
        """A new topic that is deleted afterwards."""
        made = self.create_topic(f"bench-{next(self._topics)}", partitions, fsync=fsync)
        try:
            yield made
        finally:
            self.delete_topic(made.name)

    def create_topic(self, name: str, partitions: int, *, fsync: bool = False) -> Topic:
        new = NewTopic(name, partitions, 1, config=dict(self.topic_config(fsync=fsync)))
        self.admin.create_topics([new], operation_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S)
        self.wait_for_leaders(name, partitions)
        found = self.admin.describe_topics(TopicCollection([name]))[name].result(ADMIN_TIMEOUT_S)
        bits = (found.topic_id.get_most_significant_bits(), found.topic_id.get_least_significant_bits())
        return Topic(name, b"".join((part & 2**64 - 1).to_bytes(8, "big") for part in bits))

    def delete_topic(self, name: str) -> None:
        """Delete it and wait until its files are gone."""
        self.admin.delete_topics([name], operation_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S)
        self._wait_until(lambda: not any(self.folder.glob(f"{name}-*")), time.monotonic())

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        """Until Metadata names a leader for every partition."""

        def led() -> bool:
            found = self.admin.list_topics(name, timeout=ADMIN_TIMEOUT_S).topics[name].partitions.values()
            return sum(each.leader >= 0 for each in found) == partitions

        self._wait_until(led, time.monotonic())

    def _wait_until(self, condition: Callable[[], bool], began: float) -> None:
        while not condition():
            if self.process is not None and self.process.poll() is not None:
                raise BenchError(f"{self.name} ended with code {self.process.returncode}; it said:\n{self.said()}")
            if time.monotonic() - began > START_TIMEOUT_S:
                raise BenchError(f"{self.name} was not ready in {START_TIMEOUT_S:.0f} s; it said:\n{self.said()}")
            time.sleep(POLL_S)

    def said(self, lines: int = 15) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])


class Floor(Broker):
    """bench/floor.c. It has one topic and forgets everything when it is started again: a new topic is a new process."""

    name = FLOOR

    def __init__(self, folder: Path, programs: Programs) -> None:
        super().__init__(folder)
        self._program = programs.floor

    def command(self) -> list[str]:
        return [str(self._program), str(self.port), str(self.folder)]

    def topic_config(self, *, fsync: bool) -> Mapping[str, str]:
        return {}

    def start(self) -> float:
        self.prepare()
        began = time.monotonic()
        process = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.process = process
        assert process.stdin is not None
        process.stdin.write(floor_answers(self.port))
        process.stdin.close()
        self._wait_until(self._listens, began)
        return time.monotonic() - began

    @contextmanager
    def topic(self, partitions: int = 1, *, fsync: bool = False) -> Iterator[Topic]:
        self.remove()
        self.start()
        yield Topic(FLOOR_TOPIC, FLOOR_TOPIC_ID)
        self.remove()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=2.0).close()
        except OSError:
            return False
        return True


class Tidelog(Broker):
    name = TIDELOG
    module = "tidelog"

    def __init__(self, folder: Path, asked: Mapping[str, str]) -> None:
        """`asked` for on the command line: it counts more than what a case sets."""
        super().__init__(folder)
        self._asked = asked

    def command(self) -> list[str]:
        command = [sys.executable, "-m", self.module, "serve", "--data", str(self.folder), "--listen", self.at]
        for name, value in {**SHARED_SETTINGS, **self.settings, **self._asked}.items():
            command += ["--set", f"{name}={value}"]
        return command

    def topic_config(self, *, fsync: bool) -> Mapping[str, str]:
        return {"tidelog.durability": "fsync" if fsync else "os"}


class WatchedTidelog(Tidelog):
    """It tells of each turn of its loop that took long enough to be noticed, not only of long ones."""

    module = "bench.watched"


class Kafka(Broker):
    name = KAFKA

    def __init__(self, folder: Path, jars: Path) -> None:
        super().__init__(folder)
        self._java = ["java", *KAFKA_JVM, "-cp", f"{jars}/*"]
        self._config = folder.parent / f"{folder.name}.properties"
        self._controller_port = free_port()

    def prepare(self) -> None:
        super().prepare()
        settings = {
            **KAFKA_SETTINGS,
            **SHARED_SETTINGS,
            **self.settings,
            "log.dirs": str(self.folder),
            "listeners": f"PLAINTEXT://{self.at},CONTROLLER://127.0.0.1:{self._controller_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        tool = [*self._java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config)]
        done = subprocess.run([*tool, "--standalone"], capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"Kafka's folder could not be formatted:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return [*self._java, "kafka.Kafka", str(self._config)]

    def topic_config(self, *, fsync: bool) -> Mapping[str, str]:
        return {"flush.messages": "1"} if fsync else {}

    def create_topic(self, name: str, partitions: int, *, fsync: bool = False) -> Topic:
        """Until its folders are there, too: Metadata names leaders before, and who writes then waits for them."""
        made = super().create_topic(name, partitions, fsync=fsync)
        self._wait_until(lambda: sum(1 for _ in self.folder.glob(f"{name}-*")) >= partitions, time.monotonic())
        return made
