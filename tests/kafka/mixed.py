"""A cluster of Apache Kafka's and Tidelog's nodes on this machine, each with the same kind of `server.properties`.

Each node is formatted and started by its own: `kafka-storage format` and `kafka.Kafka`, `tidelog format` and
`tidelog serve`. A node can be stopped, killed, and started again on its folder as one of the other kind.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from tests.kafka.apache import CLUSTER_ID, tool
from tests.kafka.jars import kafka_jars
from tests.kafka.toolbox import JVM
from tests.launched import Launched, free_ports
from tests.nodes import BROKER, CONTROLLER
from tests.raw import ClosedError, Connection
from tidelog.wire.keys import ApiKey
from tidelog.wire.uuids import uuid_text

START_TIMEOUT_S = 90.0
DATED = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss,SSS",
)
"""Lines of logs that can be laid beside those of the others."""

SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "600000",  # Tidelog's followers copy nothing yet: Apache leaders would have them out
    "broker.heartbeat.interval.ms": "500",
}


class Kind(Enum):
    APACHE = "Apache Kafka"
    TIDELOG = "Tidelog"


Member = tuple[Kind, str]
"""Whose it is, and its roles."""


def three_controllers(kind: Kind, brokers: Mapping[int, Kind]) -> dict[int, Member]:
    """Controllers 1, 2 and 3, and brokers beside them."""
    return {
        **dict.fromkeys((1, 2, 3), (kind, CONTROLLER)),
        **{id: (kind_of_broker, BROKER) for id, kind_of_broker in brokers.items()},
    }


class MixedNode(Launched):
    """One process. Its folder, its ports and its settings are kept over a restart, whoever is started."""

    def __init__(self, id: int, kind: Kind, roles: str, folder: Path) -> None:
        super().__init__(f"node {id}", folder.parent / f"{folder.name}.log")
        self.id = id
        self.kind = kind
        self.roles = roles.split(",")
        self.folder = folder
        self.port, self.controller_port = free_ports(2)
        self.settings: dict[str, str] = {}
        self.config = folder.parent / f"{folder.name}.properties"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def controller_address(self) -> str:
        return f"127.0.0.1:{self.controller_port}"

    @property
    def directory(self) -> bytes:
        """The id of its metadata log's folder: chosen here, so that all voters can be named before any is formatted."""
        return bytes([9] * 15 + [self.id])

    @property
    def directory_id(self) -> str:
        return uuid_text(self.directory)

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles

    @property
    def clean_codes(self) -> Collection[int]:
        """Java ends as the signal would have ended it."""
        return (0, 143) if self.kind is Kind.APACHE else (0,)

    def write_config(self) -> None:
        listeners = [f"PLAINTEXT://{self.bootstrap}"] if self.is_broker else []
        listeners += [f"CONTROLLER://{self.controller_address}"] if self.is_controller else []
        settings = {
            **SETTINGS,
            "process.roles": ",".join(self.roles),
            "node.id": str(self.id),
            "log.dirs": str(self.folder),
            "listeners": ",".join(listeners),
            **self.settings,
        }
        if not self.is_broker:
            del settings["inter.broker.listener.name"]
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def format(self, *arguments: str) -> None:
        self.write_config()
        if self.kind is Kind.APACHE:
            done = tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.config), *arguments)
        else:
            done = tidelog("format", "--config", str(self.config), "--cluster-id", CLUSTER_ID, *arguments)
        assert done.returncode == 0, f"node {self.id} could not be formatted: {done.stdout}{done.stderr}"

    def launch(self) -> None:
        """Start it, and don't wait."""
        assert self.process is None, f"node {self.id} is started already"
        self.write_config()
        if self.kind is Kind.APACHE:
            command = ["java", *JVM, *DATED, "-cp", f"{kafka_jars()}/*", "kafka.Kafka", str(self.config)]
        else:
            command = [sys.executable, "-m", "tidelog", "serve", "--config", str(self.config)]
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                command, cwd=self.config.parent, stdout=output, stderr=output, env=_environment()
            )

    def wait(self) -> None:
        """Until it serves: a broker itself stands among the brokers that it tells of, a controller answers."""
        wait_for(self._serves, f"node {self.id} ({self.kind.value}) to serve", START_TIMEOUT_S, self._check_alive)

    def start(self) -> None:
        self.launch()
        self.wait()

    def _serves(self) -> bool:
        address = self.bootstrap if self.is_broker else self.controller_address
        answer = ask(address, ApiKey.METADATA, 1, {"topics": []}) if self.is_broker else None
        if answer is not None:
            return any(broker.node_id == self.id for broker in answer.brokers)
        return not self.is_broker and ask(address, ApiKey.API_VERSIONS, 0) is not None

    def _check_alive(self) -> None:
        process = self.process
        assert process is not None
        assert process.poll() is None, f"node {self.id} ended with code {process.returncode}:\n{self.said()}"


class MixedCluster:
    """Nodes that know of each other, by id. Controllers vote from the beginning, kraft.version 1; or, where they are
    `named_voters`, by `controller.quorum.voters`, kraft.version 0."""

    def __init__(
        self,
        folder: Path,
        members: Mapping[int, Member],
        settings: Mapping[str, str] | None = None,
        *,
        named_voters: bool = False,
    ) -> None:
        self.nodes = {id: MixedNode(id, kind, roles, folder / f"node-{id}") for id, (kind, roles) in members.items()}
        self.folder = folder
        voters = ",".join(f"{node.id}@{node.controller_address}" for node in self.controllers)
        servers = ",".join(node.controller_address for node in self.controllers)
        self.settings = {
            **({"controller.quorum.voters": voters} if named_voters else {}),
            **({} if named_voters else {"controller.quorum.bootstrap.servers": servers}),
            **(settings or {}),
        }
        initial = ",".join(f"{node.id}@{node.controller_address}:{node.directory_id}" for node in self.controllers)
        for node in self:
            node.settings = self.settings
            if named_voters:
                node.format()
            elif node.is_controller:
                node.format("--initial-controllers", initial)
            else:
                node.format("--no-initial-controllers")

    def add(self, id: int, kind: Kind, roles: str) -> MixedNode:
        """A node that joins: formatted, and not started. As a controller it doesn't vote yet."""
        node = self.nodes[id] = MixedNode(id, kind, roles, self.folder / f"node-{id}")
        node.settings = self.settings
        node.format("--no-initial-controllers")
        return node

    def __enter__(self) -> "MixedCluster":
        return self

    def __exit__(self, *_: object) -> None:
        for node in self:
            if node.runs:
                node.kill()

    def __getitem__(self, id: int) -> MixedNode:
        return self.nodes[id]

    def __iter__(self) -> Iterator[MixedNode]:
        return iter(self.nodes.values())

    @property
    def controllers(self) -> list[MixedNode]:
        return [node for node in self if node.is_controller]

    @property
    def bootstrap(self) -> str:
        """The brokers that run."""
        return ",".join(node.bootstrap for node in self if node.is_broker and node.runs)

    @property
    def bootstrap_controllers(self) -> str:
        """The controllers that run."""
        return ",".join(node.controller_address for node in self.controllers if node.runs)

    def start(self, *ids: int) -> None:
        """Those, or all; controllers at the same time, since none may serve alone. Brokers come when somebody leads: an
        Apache Kafka that looks on while two are elected, one after the other, may miss the second for ever."""
        chosen = [self[id] for id in ids] if ids else list(self)
        for nodes in ([one for one in chosen if one.is_controller], [one for one in chosen if not one.is_controller]):
            for node in nodes:
                node.launch()
            for node in nodes:
                node.wait()
            if not ids:
                self.active_controller()

    def quorum(self) -> Any:
        """What the leader of the metadata log says of its replicas; None where nobody leads."""
        topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        for node in self.controllers:
            answer = ask(node.controller_address, ApiKey.DESCRIBE_QUORUM, 2, {"topics": topics}) if node.runs else None
            if answer is not None and not answer.error_code and not answer.topics[0].partitions[0].error_code:
                return answer.topics[0].partitions[0]
        return None

    def active_controller(self) -> MixedNode:
        """Who leads the metadata log, as soon as somebody does."""
        found: list[MixedNode] = []

        def leads() -> bool:
            quorum = self.quorum()
            found[:] = [self[quorum.leader_id]] if quorum is not None and self[quorum.leader_id].runs else []
            return bool(found)

        wait_for(leads, "an active controller")
        return found[0]

    def have_lead(self, id: int) -> None:
        """Have this controller elected: the others are told that who leads has stepped down, and prefers it; who leads
        is frozen meanwhile, and hears of it afterwards."""
        for _ in range(20):
            quorum = self.quorum()
            if quorum is None:
                time.sleep(0.1)
                continue
            active = self[quorum.leader_id]
            if active.id == id:
                return
            others = sorted((node for node in self.controllers if node is not active), key=lambda node: node.id != id)
            named = [{"candidate_id": node.id, "candidate_directory_id": node.directory} for node in others]
            ended = {"leader_id": active.id, "leader_epoch": quorum.leader_epoch, "preferred_candidates": named}
            topics = [{"topic_name": "__cluster_metadata", "partitions": [ended]}]
            active.freeze()
            for node in reversed(others):
                fields = {"cluster_id": CLUSTER_ID, "topics": topics}
                ask(node.controller_address, ApiKey.END_QUORUM_EPOCH, 1, fields)
            time.sleep(0.5)
            active.thaw()
        raise AssertionError(f"node {id} was not elected in twenty elections")

    def wait_until_caught_up(self, id: int) -> None:
        """The replica of this node has all that the leader has."""

        def caught_up() -> bool:
            quorum = self.quorum()
            if quorum is None:
                return False
            ends = {one.replica_id: one.log_end_offset for one in (*quorum.current_voters, *quorum.observers)}
            return ends.get(id, -1) >= ends[quorum.leader_id] - 1  # Apache's leader writes a record each half second

        wait_for(caught_up, f"node {id} to catch up")

    def wait_until_let_in(self, *ids: int) -> None:
        """Each of these brokers, or of all, knows that none of them is fenced."""
        chosen = set(ids) or {node.id for node in self if node.is_broker}

        def let_in() -> bool:
            told = [ask(self[id].bootstrap, ApiKey.METADATA, 4, {"topics": []}) for id in chosen]
            return all(one is not None and chosen <= {broker.node_id for broker in one.brokers} for one in told)

        wait_for(let_in, f"brokers {sorted(chosen)} to be let in")

    def leaders(self, topic: str) -> list[int]:
        """The leader of each partition, -1 where it has none, as any broker that runs tells it."""
        for node in self:
            if node.is_broker and node.runs:
                answer = ask(node.bootstrap, ApiKey.METADATA, 4, {"topics": [{"name": topic}]})
                if answer is not None and not answer.topics[0].error_code:
                    partitions = sorted(answer.topics[0].partitions, key=lambda one: one.partition_index)
                    return [one.leader_id for one in partitions]
        return []

    def said(self) -> str:
        return "\n\n".join(f"--- node {node.id} ({node.kind.value})\n{node.said(25)}" for node in self)


def ask(address: str, key: ApiKey, version: int, fields: Mapping[str, Any] | None = None) -> Any | None:
    """One request on a connection of its own; None where nobody answers."""
    try:
        with Connection(address, timeout_s=5.0) as connection:
            return connection.ask(key, version, fields)
    except (OSError, ClosedError):
        return None


def wait_for(
    seen: Callable[[], bool], what: str, timeout_s: float = 60.0, check: Callable[[], None] = lambda: None
) -> None:
    deadline = time.monotonic() + timeout_s
    while not seen():
        check()
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.05)


def tidelog(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments], capture_output=True, text=True, env=_environment(), timeout=60
    )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
