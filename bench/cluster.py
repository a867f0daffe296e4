"""Three combined nodes of one kind, Tidelog's or Apache Kafka's, on this machine's loopback."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.kafka.apache import CLUSTER_ID
from tests.launched import free_ports
from tests.raw import ClosedError, Connection

from bench.brokers import KAFKA, KAFKA_JVM, KAFKA_SETTINGS, POLL_S, SHARED_SETTINGS, START_TIMEOUT_S
from bench.programs import BenchError
from tidelog.wire.keys import ApiKey
from tidelog.wire.uuids import uuid_text

NODES = 3
ANSWER_S = 120.0
REPOSITORY = Path(__file__).parent.parent
HEAP = {"-Xmx1G": "-Xmx768M", "-Xms1G": "-Xms768M"}
"""Three of Kafka's share a machine."""


class ClusterNode:
    """One process, of a broker that is a controller too."""

    def __init__(self, id: int, folder: Path, jars: Path | None) -> None:
        self.id = id
        self.folder = folder / f"node-{id}"
        self.port, self.controller_port = free_ports(2)
        self.output = folder / f"node-{id}.out"
        self.config = folder / f"node-{id}.properties"
        self.process: subprocess.Popen[bytes] | None = None
        self._java = ["java", *(HEAP.get(option, option) for option in KAFKA_JVM), "-cp", f"{jars}/*"]
        self._is_kafka = jars is not None

    @property
    def at(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def controller_at(self) -> str:
        return f"127.0.0.1:{self.controller_port}"

    @property
    def directory_id(self) -> str:
        return uuid_text(bytes([5] * 15 + [self.id]))

    @property
    def pid(self) -> int:
        assert self.process is not None, f"node {self.id} isn't started"
        return self.process.pid

    def format(self, voters: str, settings: Mapping[str, str]) -> None:
        listeners = f"PLAINTEXT://{self.at},CONTROLLER://{self.controller_at}"
        given = {**settings, "node.id": str(self.id), "listeners": listeners, "log.dirs": str(self.folder)}
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        if self._is_kafka:
            command = [*self._java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.config)]
        else:
            command = [sys.executable, "-m", "tidelog", "format", "--config", str(self.config)]
            command += ["--cluster-id", CLUSTER_ID]
        done = subprocess.run([*command, "--initial-controllers", voters], capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"node {self.id} could not be formatted:\n{done.stdout}{done.stderr}")

    def launch(self) -> None:
        """Start it, and don't wait. Tidelog's tell of every turn of the loop that is long enough to be noticed."""
        if self._is_kafka:
            command = [*self._java, "kafka.Kafka", str(self.config)]
        else:
            command = [sys.executable, "-m", "bench.watched", "serve", "--config", str(self.config)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )

    def serves(self) -> bool:
        """Whether it is let in: it stands among the brokers that it tells of."""
        if self.process is not None and self.process.poll() is not None:
            raise BenchError(f"node {self.id} ended with code {self.process.returncode}; it said:\n{self.said()}")
        answer = self.ask(ApiKey.METADATA, 12, {"topics": []})
        return answer is not None and len(answer.brokers) == NODES

    def ask(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        """On a connection of its own; None where it can't be asked now."""
        try:
            with Connection(self.at, timeout_s=ANSWER_S) as connection:
                return connection.ask(key, version, fields)
        except (OSError, ClosedError):
            return None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def said(self, lines: int = 15) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])


class Cluster:
    """Started with all of them at once; killed and removed in the end."""

    def __init__(self, kind: str, folder: Path, jars: Path | None, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.nodes = [ClusterNode(id, folder, jars if kind == KAFKA else None) for id in range(1, NODES + 1)]
        voters = ",".join(f"{node.id}@{node.controller_at}:{node.directory_id}" for node in self.nodes)
        servers = ",".join(node.controller_at for node in self.nodes)
        given = {
            **{name: value for name, value in KAFKA_SETTINGS.items() if name != "node.id"},
            **SHARED_SETTINGS,
            "controller.quorum.bootstrap.servers": servers,
            **settings,
        }
        for node in self.nodes:
            node.format(voters, given)

    def __enter__(self) -> "Cluster":
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                wait_until(node.serves, f"node {node.id} to serve", START_TIMEOUT_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __iter__(self) -> Iterator[ClusterNode]:
        return iter(self.nodes)

    def controller(self) -> ClusterNode:
        """The node that leads the metadata log."""
        topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        found: list[ClusterNode] = []

        def leads() -> bool:
            for node in self.nodes:
                if node.process is None:
                    continue
                with suppress(OSError, ClosedError), Connection(node.controller_at) as connection:
                    answer = connection.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": topics}).topics[0].partitions[0]
                    if not answer.error_code:
                        found[:] = [one for one in self.nodes if one.id == answer.leader_id]
                        return bool(found)
            return False

        wait_until(leads, "an active controller", 30.0)
        return found[0]


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float) -> float:
    """How long that took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise BenchError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(POLL_S)
    return time.monotonic() - began
