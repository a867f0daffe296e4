"""A cluster of `tidelog serve` processes on this machine: to kill, freeze, stop and start node by node."""

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.launched import Launched, free_ports
from tests.raw import ClosedError, Connection
from tidelog.wire.keys import ApiKey
from tidelog.wire.uuids import uuid_text

START_TIMEOUT_S = 60.0
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
BOTH, CONTROLLER, BROKER = "broker,controller", "controller", "broker"


class Node(Launched):
    """One process. Its ports and its folder are kept over a restart."""

    def __init__(self, id: int, roles: str, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(f"node {id}", folder.parent / f"{folder.name}.log")
        self.id = id
        self.roles = roles
        self.folder = folder
        self.port, self.controller_port = free_ports(2)
        self.settings = {name: value.replace("{id}", str(id)) for name, value in settings.items()}
        self.module = "tidelog"
        """What is started: the command `tidelog`, or one that is the same with something gone wrong."""
        self.host = "127.0.0.1"
        self.prefix: list[str] = []
        """What the command is started by, such as one that enters a network namespace."""

    @property
    def directory_id(self) -> str:
        """Of its metadata log's folder: chosen here, so that all voters can be named before any is formatted."""
        return uuid_text(bytes([7] * 15 + [self.id]))

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles.split(",")

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def controller_address(self) -> str:
        return f"{self.host}:{self.controller_port}"

    def options(self) -> list[str]:
        listeners = [f"PLAINTEXT://{self.bootstrap}"] if BROKER in self.roles.split(",") else []
        listeners += [f"CONTROLLER://{self.controller_address}"] if self.is_controller else []
        given = {
            "node.id": str(self.id),
            "process.roles": self.roles,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            **self.settings,
        }
        return ["--data", str(self.folder), *(f"--set={name}={value}" for name, value in given.items())]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tidelog", *arguments],
            capture_output=True,
            text=True,
            env=_environment(),
            check=False,
        )

    def format(self, *arguments: str) -> None:
        done = self.run("format", *self.options(), "--cluster-id", CLUSTER_ID, *arguments)
        assert done.returncode == 0, done.stderr

    def launch(self) -> None:
        """Start it, and don't wait."""
        assert self.process is None, f"node {self.id} is started already"
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", self.module, "serve", *self.options()],
                stdout=subprocess.PIPE,
                stderr=output,
                env=_environment(),
            )

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until it says that it is ready."""
        process = self.process
        assert process is not None
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(timeout=max(deadline - time.monotonic(), 0)):
                line = process.stdout.readline().decode(errors="replace").strip()
                assert line, f"node {self.id} ended before it was ready; it said:\n{self.said()}"
                if " is ready on " in line:
                    return
        raise AssertionError(f"node {self.id} was not ready in {timeout_s:.0f} s; it said:\n{self.said()}")

    def start(self) -> None:
        self.launch()
        self.wait()


class Nodes:
    """Some nodes that know of each other. `roles` by node id; those that are controllers vote from the beginning.
    `{id}` in a setting is the node's id."""

    def __init__(
        self,
        folder: Path,
        roles: Mapping[int, str],
        settings: Mapping[str, str] | None = None,
        node: Callable[[int, str, Path, Mapping[str, str]], Node] = Node,
    ) -> None:
        self.by_id = {id: node(id, role, folder / f"node-{id}", settings or {}) for id, role in roles.items()}
        voters = [node for node in self.by_id.values() if node.is_controller]
        servers = ",".join(node.controller_address for node in voters)
        initial = ",".join(f"{node.id}@{node.controller_address}:{node.directory_id}" for node in voters)
        for node in self.by_id.values():
            node.settings.setdefault("controller.quorum.bootstrap.servers", servers)
            if node.is_controller:
                node.format("--initial-controllers", initial)
            else:
                node.format("--no-initial-controllers")

    def __enter__(self) -> "Nodes":
        return self.start()

    def __exit__(self, *_: object) -> None:
        for node in self:
            if node.process is not None:
                node.kill()

    def __iter__(self) -> "Iterator[Node]":
        return iter(self.by_id.values())

    def __getitem__(self, id: int) -> Node:
        return self.by_id[id]

    @property
    def bootstrap(self) -> str:
        """The brokers that run."""
        return ",".join(
            node.bootstrap
            for node in self.by_id.values()
            if BROKER in node.roles.split(",") and node.process is not None
        )

    def start(self) -> "Nodes":
        try:
            for node in self.by_id.values():
                node.launch()
            for node in self.by_id.values():
                node.wait()
        except BaseException:
            self.__exit__()
            raise
        return self


class Quorum:
    """What a node tells of the metadata log's replicas (DescribeQuorum)."""

    def __init__(self, bootstrap: str, timeout_s: float = 5.0) -> None:
        with Connection(bootstrap, timeout_s=timeout_s) as connection:
            answer = connection.ask(
                ApiKey.DESCRIBE_QUORUM,
                2,
                {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
            )
        assert not answer.error_code, answer.error_message
        told = answer.topics[0].partitions[0]
        assert not told.error_code, told.error_message
        self.leader_id: int = told.leader_id
        self.epoch: int = told.leader_epoch
        self.high_watermark: int = told.high_watermark
        self.ends = {voter.replica_id: voter.log_end_offset for voter in told.current_voters}
        """Of each voter, the end of its log."""
        self.directories = {voter.replica_id: voter.replica_directory_id for voter in told.current_voters}
        self.observers = {observer.replica_id for observer in told.observers}

    @property
    def voters(self) -> set[int]:
        return set(self.ends)


def quorum_of(nodes: "Iterable[Node]", timeout_s: float = 30.0) -> Quorum:
    """As the first of the brokers that knows tells it."""
    seen: list[Quorum] = []

    def ask() -> bool:
        for node in nodes:
            if node.process is not None and BROKER in node.roles.split(","):
                try:
                    seen.append(Quorum(node.bootstrap))
                except (OSError, ClosedError, AssertionError):
                    continue
                return True
        return False

    wait_for(ask, "a leader of the metadata log", timeout_s)
    return seen[0]


def metadata_of(bootstrap: str, topics: list[str] | None = None, timeout_s: float = 5.0) -> Any:
    """Brokers and topics, as this node tells them."""
    asked = None if topics is None else [{"name": name} for name in topics]
    with Connection(bootstrap, timeout_s=timeout_s) as connection:
        return connection.ask(ApiKey.METADATA, 12, {"topics": asked, "allow_auto_topic_creation": False})


def wait_for(seen: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not seen():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.02)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
