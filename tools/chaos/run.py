"""One run: the cluster and its clients are started, nodes are hurt one after the other, and in the end all is accounted
for."""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from tools.chaos.checker import Account, Finding, check_records
from tools.chaos.cluster import HEALED_S, IDS, ChaosError, Cluster, NotHealedError
from tools.chaos.disks import Disks
from tools.chaos.exactly_once import check_exactly_once
from tools.chaos.faults import Kind, deal
from tools.chaos.final import compare_replicas, read_final, until_drained
from tools.chaos.gaps import acked_times, gaps_after
from tools.chaos.history import Acked, Diary, Ended, Place, Read, Trouble
from tools.chaos.load import COPIERS, GROUPS, STEADY_PRODUCER, TOPICS, Load
from tools.chaos.network import Network
from tools.chaos.report import Happened, Setting, never_ran, told

WARM_S = 5.0
"""Under load before the first fault."""
QUIET_S = 2.0
"""Under load after the last one."""
TIMES_OVER = 4
"""How much longer than asked a run may take until every kind of fault has had its turn."""


@dataclass
class Wanted:
    folder: Path
    seed: int
    minutes: float
    session_ms: int
    replicas: int
    min_isr: int
    java: bool
    module: str | None = None
    """What is started instead of `tidelog`."""
    kinds: list[Kind] = field(default_factory=list[Kind])
    """Only these; all if there are none."""


class Run:
    def __init__(self, wanted: Wanted, network: Network, disks: Disks) -> None:
        self.wanted = wanted
        self.happened: list[Happened] = []
        self.findings: list[Finding] = []
        self._began_s = time.monotonic()
        self._ended_s = self._began_s
        self._network, self._disks = network, disks
        self._cluster = Cluster(
            wanted.folder,
            network,
            disks,
            session_ms=wanted.session_ms,
            replicas=wanted.replicas,
            min_isr=wanted.min_isr,
            module=wanted.module,
        )
        self._load = Load(wanted.folder / "clients", self._cluster.bootstrap, wanted.seed, java=wanted.java)

    @property
    def places(self) -> list[Place]:
        return [(topic.name, partition) for topic in TOPICS for partition in range(topic.partitions)]

    def go(self) -> str:
        """The report."""
        try:
            self._cluster.nodes.start()
            self._cluster.create(TOPICS)
            self._say("three nodes are there; clients start")
            self._load.start()
            time.sleep(WARM_S)
            self._cluster.until_healed()  # the internal topics, too
            self._hurt()
            self._account()
        except (KafkaException, AssertionError, ChaosError, OSError) as error:  # what is known is told all the same
            self.findings.append(Finding("run", "this run", f"could not go on: {error!r}"))
        finally:
            self._load.kill()
            self._cluster.close()
        self.findings += [Finding("process", "clients", failure) for failure in self._load.failures]
        self.findings += [Finding("process", "nodes", trouble) for trouble in self._cluster.troubles]
        diaries = self._load.diaries()
        self._measure(diaries)
        setting = Setting(
            self.wanted.seed,
            (self._ended_s - self._began_s) / 60,
            self.wanted.session_ms / 1000,
            self._network.what,
            self._disks.what,
            self._load.java,
        )
        return told(setting, self.happened, self.findings, [*facts_of(diaries), *self._load.replaced])

    def _hurt(self) -> None:
        """Until the time is over and every kind has had its turn, one node at a time."""
        self._began_s = time.monotonic()
        asked_s = self.wanted.minutes * 60
        for fault in deal(self.wanted.seed, self.wanted.session_ms / 1000):
            gone_s = time.monotonic() - self._began_s
            if gone_s > asked_s and (not self._missing() or gone_s > TIMES_OVER * asked_s):
                break
            if self.wanted.kinds and fault.kind not in self.wanted.kinds:
                continue
            node, was_controller = self._cluster.victim(fault)
            split = f", {fault.split.value}" if fault.split else ""
            self._say(f"{fault.kind.value}{split}: node {node.id}{' (active controller)' if was_controller else ''}")
            began_s = time.monotonic()
            self._cluster.hurt(fault, node)
            undone_s = time.monotonic()
            try:
                self._cluster.until_healed(node if fault.kind is Kind.DISK_FULL else None)
                silent = self._load.until_acknowledged(HEALED_S)
                if silent:
                    raise NotHealedError(f"after {HEALED_S:.0f} s: {', '.join(silent)}")
            except NotHealedError as error:
                self.findings.append(Finding("not healed", f"after {fault.kind.value} of node {node.id}", str(error)))
                self.happened.append(Happened(fault, node.id, was_controller, began_s, undone_s, time.monotonic()))
                break
            self.happened.append(Happened(fault, node.id, was_controller, began_s, undone_s, time.monotonic()))
            self._load.check()
            time.sleep(fault.pause_s)
        time.sleep(QUIET_S)
        self._ended_s = time.monotonic()

    def _missing(self) -> list[Kind]:
        return [kind for kind in never_ran(self.happened) if not self.wanted.kinds or kind in self.wanted.kinds]

    def _account(self) -> None:
        self._say("no more faults; producers end, and groups read up to the end")
        bootstrap = self._cluster.bootstrap
        self._load.stop_producers()
        groups = {
            group: [(topic.name, partition) for topic in topics for partition in range(topic.partitions)]
            for group, topics in GROUPS.items()
        }
        self.findings += until_drained(bootstrap, groups)
        self._load.stop()
        self._say("all is read")
        final, stuck = read_final(bootstrap, self.places, GROUPS)
        account = Account(self._load.diaries(), final)
        self.findings += [*stuck, *check_records(account), *check_exactly_once(account, COPIERS)]
        self.findings += [
            Finding("never ran", kind.value, "the run was too short for it, or nobody could be hurt so")
            for kind in self._missing()
        ]
        self._cluster.stop()
        folders = {id: self._cluster.nodes[id].folder for id in IDS}
        self.findings += compare_replicas(folders, self.places)
        if self.findings:
            for id, folder in folders.items():
                shutil.copytree(folder, self.wanted.folder / f"data-{id}", ignore_dangling_symlinks=True)

    def _measure(self, diaries: list[Diary]) -> None:
        """The gaps after each fault: until the next one, or until producers ended."""
        times = acked_times(diaries, STEADY_PRODUCER)
        if not times:
            return
        ends = [*(one.began_s for one in self.happened[1:]), self._ended_s]
        self.happened = [
            one._replace(gaps=gaps_after(times, one.began_s, end_s, self._ended_s))
            for one, end_s in zip(self.happened, ends, strict=True)
        ]

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began_s:7.1f} s  {what}", flush=True)


def facts_of(diaries: list[Diary]) -> list[str]:
    """How much was done, so that nobody takes silence for success; and what clients met and lived through."""
    acked = sum(isinstance(event, Acked) for diary in diaries for event in diary.events)
    read = sum(isinstance(event, Read) for diary in diaries for event in diary.events)
    outcomes = [event.outcome for diary in diaries for event in diary.events if isinstance(event, Ended)]
    troubles = sum(isinstance(event, Trouble) for diary in diaries for event in diary.events)
    ended = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted(set(outcomes)))
    return [
        f"{acked} records acknowledged, {read} read, transactions: {ended}; errors that were lived through: {troubles}"
    ]
