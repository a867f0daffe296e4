"""A controller of Tidelog's answers other controllers as one of Apache Kafka's does, also what no client ever asks."""

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.kafka.apache import CLUSTER_ID
from tests.kafka.mixed import Kind, MixedCluster, MixedNode, wait_for
from tests.kafka.same_answers.allowed import ALLOWED, QUORUM
from tests.kafka.same_answers.compare import differences
from tests.kafka.same_answers.scripts.quorum import (
    FEWER_THAN_NONE,
    LEADER,
    TOPIC,
    VOTER,
    Asker,
    Script,
    pieces,
    what_ends_a_leading_apache_kafka,
    what_ends_an_apache_kafka,
)
from tests.kafka.same_answers.side import Side, Step
from tests.nodes import BOTH, CONTROLLER
from tidelog.wire.errors import ErrorCode

LONG_MS = "600000"
SETTINGS = {
    # Nothing happens but by what a node is told.
    "controller.quorum.election.timeout.ms": LONG_MS,
    "controller.quorum.election.backoff.max.ms": LONG_MS,
    "controller.quorum.fetch.timeout.ms": LONG_MS,
    "metadata.max.idle.interval.ms": "0",
}

pytestmark = pytest.mark.timeout(300)


def asked(side: Side, cluster: MixedCluster) -> Asker:
    return Asker(side, CLUSTER_ID, lambda id: directory_of(cluster, id))


def directory_of(cluster: MixedCluster, id: int) -> bytes:
    return cluster[id].directory if id in cluster.nodes else bytes([6] * 16)


def played(scripts: tuple[Script, ...], asker: Asker) -> list[Step]:
    """All of them, one after the other: each begins where the one before left the node."""
    try:
        for script in scripts:
            script(asker, Random(1))
    finally:
        asker.side.close()
    return asker.side.transcript


def compare(ours: list[Step], theirs: list[Step]) -> None:
    found = differences(ours, theirs, ALLOWED + QUORUM)
    told = "\n".join(map(str, found))
    assert not found, f"{len(found)} places in {len(theirs)} answers differ from Kafka's:\n{told}"


def voter(kind: Kind, folder: Path, scripts: tuple[Script, ...] = VOTER) -> list[Step]:
    with MixedCluster(folder, dict.fromkeys((1, 2, 3), (kind, CONTROLLER)), SETTINGS) as cluster:
        cluster.start(1)
        return played(scripts, asked(Side(kind.value, cluster[1].controller_address), cluster))


def leader(kind: Kind, folder: Path, scripts: tuple[Script, ...] = LEADER) -> list[Step]:
    with MixedCluster(folder, {1: (kind, CONTROLLER)}, SETTINGS) as cluster:
        cluster.start()
        asker = asked(Side(kind.value, cluster[1].controller_address), cluster)
        settle(asker, cluster)
        return played(scripts, asker)


def settle(asker: Asker, cluster: MixedCluster) -> None:
    """Until the leader has written all that it writes by itself."""
    seen: list[int] = []

    def rests() -> bool:
        quorum = cluster.quorum()
        if quorum is None:
            return False
        asker.epoch = quorum.leader_epoch
        seen.append(quorum.current_voters[0].log_end_offset)
        asker.end = quorum.leader_epoch, seen[-1]
        time.sleep(0.1)
        return seen[-1] > 1 and seen[-1] == quorum.high_watermark and len(seen) > 5 and len(set(seen[-5:])) == 1

    wait_for(rests, "the leader to rest")


@pytest.mark.long
def test_a_voter_answers_the_same(jars: Path, tmp_path: Path) -> None:
    theirs = voter(Kind.APACHE, tmp_path / "apache")
    ours = voter(Kind.TIDELOG, tmp_path / "tidelog")
    compare(ours, theirs)


@pytest.mark.long
def test_a_leader_answers_the_same(jars: Path, tmp_path: Path) -> None:
    theirs = leader(Kind.APACHE, tmp_path / "apache")
    ours = leader(Kind.TIDELOG, tmp_path / "tidelog")
    compare(ours, theirs)


def newest_checkpoint(node: MixedNode) -> tuple[tuple[int, int], int]:
    """Its end offset and epoch, and its size."""
    found = [path for path in (node.folder / f"{TOPIC}-0").glob("*.checkpoint") if not path.name.startswith("0" * 20)]
    newest = max(found)
    offset, _, epoch = newest.stem.partition("-")
    return (int(offset), int(epoch)), newest.stat().st_size


def checkpoint(kind: Kind, folder: Path, fewer: tuple[tuple[str, int, int], ...] = ()) -> list[Step]:
    settings = SETTINGS | {"metadata.log.max.record.bytes.between.snapshots": "100"}
    with MixedCluster(folder, {1: (kind, BOTH)}, settings) as cluster:
        cluster.start()
        asker = asked(Side(kind.value, cluster[1].controller_address), cluster)
        settle(asker, cluster)
        wait_for(lambda: any(cluster[1].folder.glob(f"{TOPIC}-0/*[1-9]-*.checkpoint")), "a checkpoint")
        snapshot, size = newest_checkpoint(cluster[1])
        return played((lambda asker, rng: pieces(asker, snapshot, size, fewer),), asker)


@pytest.mark.long
def test_pieces_of_a_checkpoint_are_the_same(jars: Path, tmp_path: Path) -> None:
    theirs = checkpoint(Kind.APACHE, tmp_path / "apache")
    ours = checkpoint(Kind.TIDELOG, tmp_path / "tidelog")
    compare(ours, theirs)


def test_what_ends_an_apache_kafka_is_answered(tmp_path: Path) -> None:
    steps = voter(Kind.TIDELOG, tmp_path / "voter", (what_ends_an_apache_kafka,))
    steps += leader(Kind.TIDELOG, tmp_path / "leader", (what_ends_a_leading_apache_kafka,))
    steps += checkpoint(Kind.TIDELOG, tmp_path / "checkpoint", FEWER_THAN_NONE)[-1:]
    told = [(step.label, errors(step.answer)) for step in steps]
    refused = [ErrorCode.INVALID_REQUEST]
    assert told == [
        ("VOTE v2 itself", refused),
        ("VOTE v2 itself, before", refused),
        ("BEGIN_QUORUM_EPOCH v1 a leader", []),
        ("BEGIN_QUORUM_EPOCH v1 another leader", refused),
        ("END_QUORUM_EPOCH v1 by another leader", refused),
        ("BEGIN_QUORUM_EPOCH v0 a leader that nobody knows where to find", []),
        ("FETCH_SNAPSHOT v1 no topic", refused),
        ("VOTE v2 who leads after all that", [ErrorCode.FENCED_LEADER_EPOCH]),
        ("BEGIN_QUORUM_EPOCH v1 another leader", refused),
        ("END_QUORUM_EPOCH v1 by another leader", refused),
        ("VOTE v2 who leads after all that", refused),
        ("FETCH_SNAPSHOT v1 fewer than none", []),
    ]


def errors(answer: Any) -> list[int]:
    """The errors of an answer that aren't 0, whole and of its partition."""
    partitions = [partition for topic in answer["topics"] for partition in topic["partitions"]]
    return [code for code in (answer["error_code"], *(one["error_code"] for one in partitions)) if code]
