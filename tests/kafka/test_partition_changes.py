"""What becomes of a partition is what Apache Kafka's own controller makes of it: thousands of random partitions."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.kafka.apache import JVM
from tidelog.controller.partition_change import Election, Electors, Target, as_it_is, change
from tidelog.metadata.image import NO_LEADER, PartitionImage
from tidelog.metadata.versions import MV_3_6_IV0, MV_3_6_IV1, MV_4_3_IV0

SOURCE = Path(__file__).with_name("PartitionChanges.java")
CASES = 30_000
BROKERS = range(1, 7)


@dataclass(frozen=True)
class Case:
    partition: PartitionImage
    target: Target
    acceptable: frozenset[int]
    metadata_version: int
    min_isr: int
    elr_enabled: bool
    election: Election
    unclean: int

    def line(self) -> str:
        p, t = self.partition, self.target
        low = ",".join(str(int.from_bytes(directory)) for directory in p.directories)
        moved = "".join(f"{replica}:{int.from_bytes(directory)}" for replica, directory in t.directories)
        fields = [
            *map(_text, (p.replicas, p.isr, p.removing, p.adding)),
            str(p.leader),
            str(p.leader_recovery_state),
            *map(_text, (p.elr, p.last_known_elr)),
            low,
            _text(sorted(self.acceptable)),
            str(self.metadata_version),
            str(self.min_isr),
            str(int(self.elr_enabled)),
            self.election.name,
            "" if self.unclean == NO_LEADER else str(self.unclean),
            *map(_text, (t.isr, t.replicas, t.removing, t.adding)),
            str(t.recovery_state),
            moved,
        ]
        return ";".join(fields)

    def ours(self) -> str:
        electors = Electors(
            self.min_isr,
            self.elr_enabled,
            self.election,
            lambda replica, _: replica in self.acceptable,
            unclean=self.unclean,
            epoch_on_shrink=self.metadata_version < MV_3_6_IV0,
        )
        fields = change(self.partition, electors, self.target)
        if not fields:
            return "nothing"
        directories: list[bytes] | None = fields.get("directories")
        return ";".join(
            [
                _optional(fields, "isr"),
                str(fields.get("leader", -2)),
                _optional(fields, "replicas"),
                _optional(fields, "removing_replicas"),
                _optional(fields, "adding_replicas"),
                str(fields.get("leader_recovery_state", -1)),
                "null" if directories is None else ",".join(str(int.from_bytes(d)) for d in directories),
                _optional(fields, "eligible_leader_replicas"),
                _optional(fields, "last_known_elr"),
            ]
        )


def _text(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def _optional(fields: dict[str, Any], name: str) -> str:
    return _text(fields[name]) if name in fields else "null"


def _some(random: Random, of: Sequence[int], most: int | None = None) -> tuple[int, ...]:
    return tuple(random.sample(list(of), random.randint(0, len(of) if most is None else min(most, len(of)))))


def _partition(random: Random, *, elr_enabled: bool) -> PartitionImage:
    replicas = tuple(random.sample(list(BROKERS), random.randint(2, 5)))
    isr = _some(random, replicas)
    if not isr and not elr_enabled:
        isr = replicas[:1]
    leader = random.choice([NO_LEADER, *isr, *isr]) if isr else NO_LEADER
    elr = tuple(sorted(_some(random, [r for r in replicas if r not in isr]))) if elr_enabled else ()
    last_known = (random.choice(replicas),) if leader == NO_LEADER and elr_enabled and random.random() < 0.7 else ()
    moving = random.random() < 0.4
    adding = tuple(sorted(_some(random, replicas, len(replicas) - 1))) if moving else ()
    removing = tuple(sorted(_some(random, [r for r in replicas if r not in adding]))) if moving else ()
    return PartitionImage(
        replicas,
        isr,
        leader,
        7,
        11,
        tuple(random.randint(200, 202).to_bytes(16) for _ in replicas),
        elr,
        last_known,
        removing,
        adding,
        leader_recovery_state=int(leader != NO_LEADER and len(isr) == 1 and random.random() < 0.2),
    )


def _target(random: Random, p: PartitionImage) -> tuple[Target, int]:
    """What one of the controller's decisions would ask for; and the broker that went down uncleanly."""
    as_is = as_it_is(p)
    kind = random.randrange(7)
    if kind <= 1:  # a broker goes, cleanly or not
        gone = random.choice(p.replicas)
        left = replace(as_is, isr=tuple(r for r in p.isr if r != gone))
        return left, gone if kind else NO_LEADER
    if kind == 2 and p.leader != NO_LEADER:  # the leader asks for another ISR
        others = [r for r in p.replicas if r != p.leader]
        return replace(as_is, isr=(p.leader, *_some(random, others)), recovery_state=0), NO_LEADER
    if kind == 3:  # a reassignment
        wanted = tuple(random.sample(list(BROKERS), random.randint(1, 4)))
        removing = tuple(sorted(set(p.replicas) - set(wanted)))
        adding = tuple(sorted({*p.adding, *(set(wanted) - set(p.replicas))}))
        if not set(adding) & set(removing):  # Kafka's would never end: docs/differences.md
            return replace(as_is, replicas=(*wanted, *removing), removing=removing, adding=adding), NO_LEADER
    if kind == 4 and p.adding and set(p.isr) - set(p.adding):  # it is cancelled
        replicas = tuple(r for r in p.replicas if r not in p.adding)
        isr = tuple(r for r in p.isr if r not in p.adding)
        return replace(as_is, replicas=replicas, isr=isr, adding=(), removing=()), NO_LEADER
    if kind == 5:  # a replica is in another directory
        moved = (random.choice(p.replicas), random.randint(200, 202).to_bytes(16))
        return replace(as_is, directories=(moved,)), NO_LEADER
    return as_is, NO_LEADER


def _case(random: Random) -> Case:
    elr_enabled = random.random() < 0.7
    metadata_version = MV_4_3_IV0 if elr_enabled else random.choice([MV_4_3_IV0, MV_3_6_IV1])
    partition = _partition(random, elr_enabled=elr_enabled)
    if metadata_version < MV_4_3_IV0:
        metadata_version = random.choice([MV_3_6_IV0 - 1, MV_3_6_IV1])
        partition = partition._replace(directories=())
    target, unclean = _target(random, partition)
    if not partition.directories:
        target = replace(target, directories=())
    acceptable = frozenset(_some(random, [r for r in partition.replicas if r != unclean]))
    return Case(
        partition,
        target,
        acceptable,
        metadata_version,
        random.randint(1, 3),
        elr_enabled,
        random.choice(list(Election)),
        unclean,
    )


def _of_replicas(case: Case, answer: str) -> str:
    """Only what both have: Kafka keeps a replica eligible that a reassignment takes out, or that misses what a leader
    commits alone, and remembers that nobody led (docs/differences.md)."""
    if answer == "nothing":
        return answer
    fields = answer.split(";")
    replicas = _text(case.target.replicas) if fields[2] == "null" else fields[2]
    eligible = _text(case.partition.elr) if fields[7] == "null" else fields[7]
    fields[7] = ",".join(replica for replica in eligible.split(",") if replica in replicas.split(","))
    isr = _text(case.partition.isr) if fields[0] == "null" else fields[0]
    if isr and case.min_isr == 1:
        fields[7] = ""
    if fields[8] == str(NO_LEADER):
        fields[8] = "null"
    return ";".join(fields)


@pytest.mark.long
def test_changes_are_apache_kafkas(jars: Path, tmp_path: Path) -> None:
    random = Random(966)
    cases = [_case(random) for _ in range(CASES)]
    classes = tmp_path / "classes"
    path = ":".join(map(str, jars.glob("*.jar")))
    done = subprocess.run(
        ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", path, "-d", str(classes), str(SOURCE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "error:" not in done.stderr, done.stderr[:1000]
    if done.returncode:
        pytest.skip(f"no compiler in this Java: {done.stderr[:500]}")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    run = subprocess.run(
        ["java", *JVM, quiet, "-cp", f"{classes}:{path}", "PartitionChanges"],
        input="\n".join(case.line() for case in cases) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    answers = run.stdout.splitlines()
    assert len(answers) == CASES, run.stderr[:2000]
    different = [
        (case, ours, kafkas)
        for case, kafkas in zip(cases, answers, strict=True)
        if (ours := _of_replicas(case, case.ours())) != _of_replicas(case, kafkas)
    ]
    assert not different, f"{len(different)} of {CASES}: {different[:3]}"
