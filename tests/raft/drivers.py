"""A replica of the metadata log, driven by hand: on a simulated disk, with a note of what it sends to other voters."""

from collections.abc import Iterable, Sequence

from tests.log.harness import ROOT, LogHarness
from tidelog.raft.checkpointer import SnapshotSource
from tidelog.raft.driver import RaftDriver
from tidelog.raft.events import Effect
from tidelog.raft.replay import ReplayBatch
from tidelog.raft.settings import RaftSettings
from tidelog.raft.snapshot import SnapshotContents, SnapshotId, encode_snapshot, write_snapshot
from tidelog.raft.store_log import METADATA_CONFIG, METADATA_TOPIC, StoreLog
from tidelog.raft.voters import ReplicaKey, Voter, VoterSet

FOLDER = f"{ROOT}/{METADATA_TOPIC}-0"
KEYS = [ReplicaKey(id, bytes([id]) * 16) for id in (1, 2, 3)]
ONE, TWO, THREE = KEYS
VOTERS = VoterSet(tuple(Voter(key) for key in KEYS))


class Listener:
    """What a machine on top is told."""

    def __init__(self) -> None:
        self.replayed: list[ReplayBatch] = []
        self.loaded: list[SnapshotId] = []
        self.led: list[int] = []
        self.ended: list[int] = []
        self.source: SnapshotSource | None = None

    def load_snapshot(self, contents: SnapshotContents, snapshot: SnapshotId) -> None:
        self.loaded.append(snapshot)

    def replay(self, batches: Iterable[ReplayBatch]) -> None:
        self.replayed += batches

    def lead(self, epoch: int) -> None:
        self.led.append(epoch)

    def stop_leading(self, epoch: int) -> None:
        self.ended.append(epoch)

    def committed(self, end: int) -> None:
        pass

    def snapshot_source(self) -> SnapshotSource | None:
        return self.source


class DrivenReplica:
    """Replica 1 of three voters, one life of it."""

    def __init__(self, harness: LogHarness, settings: RaftSettings | None = None) -> None:
        self.harness = harness
        self.sent: list[Effect] = []
        self.listener = Listener()
        self.log = StoreLog(harness.store, harness.timeline, harness.topic(METADATA_CONFIG))
        self.driver = RaftDriver(
            harness.store.env, FOLDER, Voter(ONE), self.log, settings or RaftSettings(), self.sent.append
        )
        self.driver.start(self.listener)

    def run_until_sent(self) -> Effect:
        """What it sends next."""
        before = len(self.sent)
        self.harness.run(lambda: len(self.sent) > before)
        return self.sent[before]


def format_with_voters(harness: LogHarness, snapshot: SnapshotId, values: Sequence[bytes] = ()) -> None:
    """A checkpoint that names the three voters."""
    harness.disk.make_folders(FOLDER)
    batches = encode_snapshot(
        values, epoch=snapshot.epoch, log_timestamp_ms=0, now_ms=0, kraft_version=1, voters=VOTERS
    )
    write_snapshot(harness.disk, FOLDER, snapshot.file_name, batches)
