"""Three combined nodes under test: who leads what, whether all replicas are in sync, what each fault does to one."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.nodes import BOTH, Node, Nodes, Quorum, metadata_of, wait_for
from tests.raw import ClosedError, Connection
from tools.chaos.disks import Disks
from tools.chaos.faults import Fault, Kind, Split
from tools.chaos.network import Network

from tidelog.wire.keys import ApiKey

IDS = (1, 2, 3)
ASKED_S = 5.0
HEALED_S = 120.0
"""When all replicas must be in sync again, on the busiest machine."""
DISK_WATCHED_S = 0.2


class ChaosError(Exception):
    """The run can't go on; the message says why."""


class NotHealedError(ChaosError):
    """Replicas stayed out of sync."""


class Topic:
    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.partitions = partitions


class Cluster:
    """The nodes, and those faults that hurt one of them at a time."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        disks: Disks,
        *,
        session_ms: int,
        replicas: int,
        min_isr: int,
        module: str | None = None,
    ) -> None:
        self.replicas = replicas
        self.troubles: list[str] = []
        """What nodes did that nobody asked of them."""
        self._network = network
        self._disks = disks
        self._module = module
        settings = {
            "broker.session.timeout.ms": str(session_ms),
            "broker.heartbeat.interval.ms": str(min(2000, session_ms // 4)),
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(min_isr),
            "group.initial.rebalance.delay.ms": "0",
            "leader.imbalance.check.interval.seconds": "5",
            "min.insync.replicas": str(min_isr),
            "auto.create.topics.enable": "false",
        }
        self.nodes = Nodes(folder, dict.fromkeys(IDS, BOTH), settings, self._node)

    def _node(self, id: int, roles: str, folder: Path, settings: Mapping[str, str]) -> Node:
        node = Node(id, roles, folder, settings)
        self._network.place(node)
        self._disks.place(node)
        node.module = self._module or node.module
        return node

    @property
    def bootstrap(self) -> str:
        """All of them, running or not."""
        return ",".join(node.bootstrap for node in self.nodes)

    def close(self) -> None:
        self._network.heal()
        for node in self.nodes:
            if node.process is not None:
                node.kill()
        self._network.close()

    def stop(self) -> None:
        """All at once, in order: the last one alone would have no controller to tell."""
        nodes = [node for node in self.nodes if node.process is not None]
        with ThreadPoolExecutor(len(nodes)) as threads:
            for node, stopped in [(node, threads.submit(node.stop)) for node in nodes]:
                error = stopped.exception()
                if error is not None:
                    self.troubles.append(f"node {node.id} could not be stopped: {error}")

    def create(self, topics: list[Topic]) -> None:
        asked = [
            {"name": topic.name, "num_partitions": topic.partitions, "replication_factor": self.replicas}
            for topic in topics
        ]
        with Connection(self.nodes[IDS[0]].bootstrap) as connection:
            answer = connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": asked, "timeout_ms": 10_000})
        codes = {topic.name: topic.error_code for topic in answer.topics if topic.error_code}
        if codes:
            raise ChaosError(f"topics could not be made: {codes}")
        self.until_healed()

    def ask(self, ask: Callable[[str], Any], but: Node | None = None) -> Any:
        """What the first node that answers says; None where none does."""
        for node in self.nodes:
            if node is not but and node.process is not None:
                with suppress(OSError, ClosedError, AssertionError):
                    return ask(node.bootstrap)
        return None

    def active_controller(self) -> Node:
        found: list[Node] = []

        def known() -> bool:
            quorum = self.ask(lambda at: Quorum(at, ASKED_S))
            if quorum is not None and quorum.leader_id in IDS:
                found.append(self.nodes[quorum.leader_id])
            return bool(found)

        wait_for(known, "an active controller", HEALED_S)
        return found[0]

    def leaders_of(self, topic: str) -> list[int]:
        answer = self.ask(lambda at: metadata_of(at, [topic], ASKED_S))
        partitions = [] if answer is None else answer.topics[0].partitions
        return [partition.leader_id for partition in partitions if partition.leader_id in IDS]

    def until_healed(self, hurt: Node | None = None) -> None:
        """Until every node tells of all brokers, and of every replica as in sync; nodes that ended meanwhile are
        started again. `hurt`: one that may have ended by itself, since its disk was full."""
        deadline = time.monotonic() + HEALED_S
        while True:
            self.revive(hurt)
            missing = [lack for node in self.nodes for lack in self._lacks(node)]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise NotHealedError(f"after {HEALED_S:.0f} s: {', '.join(missing[:5])}")
            time.sleep(0.05)

    def _lacks(self, node: Node) -> list[str]:
        try:
            told = metadata_of(node.bootstrap, None, ASKED_S)
        except (OSError, ClosedError) as error:
            return [f"node {node.id} doesn't answer ({error!r})"]
        lacks = [] if len(told.brokers) == len(IDS) else [f"node {node.id} knows {len(told.brokers)} brokers"]
        for topic in told.topics:
            for partition in topic.partitions:
                where = f"{topic.name}-{partition.partition_index}"
                if len(partition.isr_nodes) < self.replicas:
                    lacks.append(f"{where} has the ISR {sorted(partition.isr_nodes)}, says node {node.id}")
                if partition.leader_id not in IDS:
                    lacks.append(f"{where} has no leader, says node {node.id}")
        return lacks

    def revive(self, expected: Node | None = None) -> None:
        """Start what ended by itself, and say so; `expected` may."""
        for node in self.nodes:
            if node.process is not None and node.process.poll() is not None:
                code = node.process.poll()
                if node is not expected:
                    self.troubles.append(f"node {node.id} ended with code {code}; it said:\n{node.said(5)}")
                node.kill()
            if node.process is None:
                node.start()

    def victim(self, fault: Fault) -> tuple[Node, bool]:
        """Whom it hurts, and whether that is the active controller."""
        active = self.active_controller()
        if fault.kind is Kind.KILL_CONTROLLER:
            return active, True
        leading = sorted(set(self.leaders_of("steady")))
        if fault.kind is Kind.KILL_LEADER:
            leading = [id for id in leading if id != active.id] or leading
        among = leading or list(IDS)
        node = self.nodes[among[int(fault.victim * len(among))]]
        return node, node is active

    def hurt(self, fault: Fault, node: Node) -> None:
        """Do it, and undo it after its time."""
        match fault.kind:
            case Kind.KILL_LEADER | Kind.KILL_CONTROLLER:
                node.kill()
                time.sleep(fault.lasts_s)
                node.start()
            case Kind.FREEZE:
                node.freeze()
                try:
                    time.sleep(fault.lasts_s)
                finally:
                    node.thaw()
            case Kind.STOP:
                node.stop()
                time.sleep(fault.lasts_s)
                node.start()
            case Kind.SPLIT_BOTH | Kind.SPLIT_ONE_WAY:
                self._network.split(node.id, fault.split or Split.BOTH)
                try:
                    time.sleep(fault.lasts_s)
                finally:
                    self._network.heal()
            case Kind.DISK_FULL:
                self._fill(node, fault.lasts_s)

    def _fill(self, node: Node, lasts_s: float) -> None:
        """It may end: a controller without room for its metadata does."""
        until_s = time.monotonic() + lasts_s
        try:
            while time.monotonic() < until_s:
                self._disks.fill(node)  # again and again: a broker that compacts, or removes a segment, makes room
                time.sleep(DISK_WATCHED_S)
        finally:
            self._disks.clear(node)
        self.revive(expected=node)
