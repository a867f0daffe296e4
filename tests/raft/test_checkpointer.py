"""Checkpoints of the metadata while the disk fails: the log goes only where one is durable, and nobody stumbles."""

import pytest

from tests.log.harness import ROOT, LogHarness
from tidelog.raft.checkpointer import Checkpointer, SnapshotSource
from tidelog.raft.control import data_batch
from tidelog.raft.settings import RaftSettings
from tidelog.raft.snapshot import SnapshotId, list_snapshots
from tidelog.raft.store_log import METADATA_CONFIG, METADATA_TOPIC, StoreLog
from tidelog.raft.voters import ReplicaKey, Voter, VoterSet
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom

FOLDER = f"{ROOT}/{METADATA_TOPIC}-0"


class Scribe:
    """A metadata log, and the checkpoints of it."""

    def __init__(self, harness: LogHarness) -> None:
        self.harness = harness
        self.log = StoreLog(harness.store, harness.timeline, harness.topic(METADATA_CONFIG))
        self.log.open(lambda _: None, lambda _: None)
        harness.disk.make_folders(FOLDER)
        self.checkpointer = Checkpointer(
            harness.store.env,
            FOLDER,
            self.log,
            RaftSettings(retention_bytes=0),
            self._source,
            lambda _: (0, VoterSet((Voter(ReplicaKey(1), ()),))),
        )

    def _source(self) -> SnapshotSource:
        return SnapshotSource(SnapshotId(self.log.end.offset, 1), 5, [b"all that is known"])

    def write(self, count: int) -> None:
        for _ in range(count):
            self.log.append(data_batch([b"x"], self.log.end.offset, 1, 5))
        self.harness.run(lambda: self.log.durable_end == self.log.end.offset)

    def take(self) -> None:
        taken = self.checkpointer.take()
        self.harness.run(lambda: taken.done)
        self.harness.settle(0.1)


@pytest.fixture
def scribe() -> Scribe:
    return Scribe(LogHarness(SimDisk(SimRandom(4))))


def test_the_log_goes_on_behind_the_last_checkpoint_only(scribe: Scribe) -> None:
    scribe.write(3)
    scribe.take()
    scribe.write(3)
    scribe.take()
    assert scribe.checkpointer.snapshots == [SnapshotId(6, 1)]
    assert scribe.log.log_start == 6
    assert list_snapshots(scribe.harness.disk, FOLDER) == [SnapshotId(6, 1)]


def test_a_checkpoint_that_could_not_be_written_lets_nothing_go(scribe: Scribe) -> None:
    assert isinstance(scribe.harness.disk, SimDisk)
    scribe.write(3)
    scribe.take()
    scribe.write(3)
    scribe.harness.disk.failing_syncs = 1
    scribe.take()
    assert (scribe.checkpointer.snapshots, scribe.log.log_start) == ([SnapshotId(3, 1)], 0)


def test_old_checkpoints_that_could_not_be_removed_are_no_reason_to_stumble(
    scribe: Scribe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scribe.write(3)
    scribe.take()
    scribe.write(3)

    def refuse(path: str) -> None:
        raise OSError(5, "no", path)

    monkeypatch.setattr(scribe.harness.disk, "remove", refuse)
    scribe.take()
    assert "could not be removed" in caplog.text
    monkeypatch.undo()
    scribe.write(3)
    scribe.take()
    assert scribe.checkpointer.snapshots == [SnapshotId(9, 1)]
