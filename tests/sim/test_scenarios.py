"""Compacted topics, retention, fetch sessions, topics made again: promises are kept, and broken brokers found out."""

from copy import copy
from itertools import count
from typing import Any

import pytest

from tidelog.apis.fetch.sessions import Session
from tidelog.controller.controller import MetadataError
from tidelog.controller.record_log import RecordLog
from tidelog.log import leftovers, producer_state, retention
from tidelog.log.checkpoint_files import CheckpointFiles
from tidelog.log.compaction import rewriting, walking
from tidelog.log.deletion import Deletion
from tidelog.log.log import Log
from tidelog.log.names import CLEANED
from tidelog.log.producer_snapshot import read_snapshot
from tidelog.log.producers import Producers
from tidelog.log.segments import Segments
from tidelog.log.snapshots import Snapshots
from tidelog.log.store import Store
from tidelog.sim.clients import workloads
from tidelog.sim.clients.workloads import IdempotentProducer
from tidelog.sim.scenarios.changes import ChangesRun
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.compacted import CompactedRun
from tidelog.sim.scenarios.kept import KeptRun
from tidelog.sim.scenarios.listed import BY_NAME_ONLY, SCENARIOS, make, of_seed
from tidelog.sim.scenarios.recreated import AgainRun
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.inode import FileNode

POWER = (("power", 1.0),)
KILL = (("kill", 1.0),)
DROP = (("drop", 1.0),)
RETENTION = (("retention bursts", 1.0),)


def first_violation(
    run: type[CompactedRun | KeptRun | AgainRun], faults: tuple[tuple[str, float], ...], seeds: int = 40
) -> str:
    for seed in range(seeds):
        try:
            run(seed, faults).go()
        except Violation as violation:
            return str(violation)
    return f"none in {seeds} seeds"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("run", [CompactedRun, KeptRun, AgainRun])
def test_every_promise_is_kept(run: type[CompactedRun | KeptRun | AgainRun], seed: int) -> None:
    outcome = run(seed).go()
    assert outcome.acknowledged > 0
    assert outcome.fetched > 0


def test_a_start_on_a_full_disk_is_saved_of_no_log_that_is_not_known_to_be_new() -> None:
    """Else a power loss finds a start above the end, and nothing that says that this is no damage."""
    assert KeptRun(7290).go().acknowledged > 0


def test_a_folder_is_put_aside_without_a_descriptor_to_sync_that() -> None:
    assert AgainRun(7355).go().acknowledged > 0


@pytest.mark.parametrize("run", [CompactedRun, KeptRun, AgainRun])
def test_the_same_seed_gives_the_same_run(run: type[CompactedRun | KeptRun | AgainRun]) -> None:
    assert run(7).go().trace == run(7).go().trace


@pytest.mark.parametrize("seed", range(6))
def test_changes_are_there_whole_or_not_at_all(seed: int) -> None:
    assert ChangesRun(seed).go().acknowledged > 0


def test_the_same_changes_come_from_the_same_seed() -> None:
    assert ChangesRun(7).go().trace == ChangesRun(7).go().trace


def test_a_large_change_that_is_left_open_on_a_full_disk_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decided afterwards would be a part of it."""
    monkeypatch.setattr(RecordLog, "_try_to_abort", lambda self, *_: setattr(self, "_unfinished", None))
    found = first_failure(200 // len(SCENARIOS))
    told = ("are there in part", "within a metadata transaction", "was made and kept", "the settings are those of")
    assert any(words in found for words in told), found


def first_failure(seeds: int) -> str:
    """What is wrong with the first run of changes that fails: a broken promise, or a broker that doesn't start."""
    for seed in range(seeds):
        try:
            ChangesRun(seed).go()
        except (Violation, MetadataError) as failure:
            return str(failure)
    return f"none in {seeds} seeds"


def test_each_seed_has_its_scenario() -> None:
    """One of those with a single broker; a cluster is asked for by name."""
    in_turn = [name for name in SCENARIOS if name not in BY_NAME_ONLY]
    assert [of_seed(seed) for seed in range(len(in_turn))] == in_turn
    assert of_seed(len(in_turn)) == of_seed(0)
    assert isinstance(make("kept", 3), KeptRun)


def test_a_cleaning_that_loses_a_batch_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    survivors, batches = rewriting.survivors, count()

    def careless(*args: Any, **more: bool) -> walking.Survivors:
        return survivors(*args, **more) if next(batches) % 7 else walking.Survivors([], 0, False)

    monkeypatch.setattr(rewriting, "survivors", careless)
    assert "lost record" in first_violation(CompactedRun, DROP)


def test_tombstones_that_go_too_early_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    survivors = rewriting.survivors

    def hasty(*args: Any, **_: bool) -> walking.Survivors:
        return survivors(*args, deletes=True)

    monkeypatch.setattr(rewriting, "survivors", hasty)
    assert "tombstone, too young to go" in first_violation(CompactedRun, DROP)


def test_cleaned_segments_that_are_not_synced_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = SimDisk.sync_node

    def lazy(self: SimDisk, node: FileNode, path: str) -> None:
        if not path.endswith(CLEANED):
            sync(self, node, path)

    monkeypatch.setattr(SimDisk, "sync_node", lazy)
    assert "none" not in first_violation(CompactedRun, POWER)


def test_a_swap_that_a_crash_undoes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def undo(disk: SimDisk, folder: str, _: list[str], swaps: list[str]) -> None:
        for name in swaps:
            disk.remove(f"{folder}/{name}")

    monkeypatch.setattr(leftovers, "_swap_in", undo)
    assert "none" not in first_violation(CompactedRun, (("swap", 1.0),))


def test_retention_that_takes_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    look = retention.look

    def too_early(log: Log, start: int, now_ms: int) -> int:
        return look(log, start, now_ms + max(log.config.retention_ms, 0) // 3)

    def too_much(log: Log, start: int, now_ms: int) -> int:
        own = log.config
        log.config = copy(own)
        object.__setattr__(log.config, "retention_bytes", own.retention_bytes // 4)
        try:
            return look(log, start, now_ms)
        finally:
            log.config = own

    monkeypatch.setattr(retention, "look", too_early)
    assert "let go of offset" in first_violation(KeptRun, DROP)
    monkeypatch.setattr(retention, "look", too_much)
    assert "was let go of down to" in first_violation(KeptRun, DROP)


@pytest.fixture
def hasty_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments go at once, and the snapshot before them is what a start after a kill believes."""
    monkeypatch.setattr(Deletion, "begin", lambda _, log, start, now_ms: log.delete_segments(start))
    monkeypatch.setattr(producer_state, "_restore", restore_any)


@pytest.mark.usefixtures("hasty_retention")
def test_producers_that_are_older_than_their_batches_are_found_out() -> None:
    """By what they are told, or by a transaction of theirs that nobody ends."""
    found = first_violation(KeptRun, RETENTION)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in found or "the last stable offset to come to the end" in found


@pytest.mark.usefixtures("hasty_retention")
def test_transactions_whose_markers_went_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "FATAL", ())
    monkeypatch.setattr(IdempotentProducer, "done", True)
    assert "the last stable offset to come to the end" in first_violation(KeptRun, RETENTION)


def restore_any(segments: Segments, snapshots: Snapshots, producers: Producers) -> int:
    """A snapshot that ends before the first segment is trusted, too."""
    newest = snapshots.newest
    if newest is None:
        return segments.oldest
    producers.restore(read_snapshot(segments.around.disk, segments.folder.snapshot_path(newest)), newest)
    return newest


def test_a_fetch_session_that_keeps_silent_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    news = Session.news
    monkeypatch.setattr(
        Session, "news", lambda self, key, answered, first: news(self, key, answered, first=first) and key[1] != 1
    )
    assert "fetch sessions to see it all" in first_violation(KeptRun, DROP, 1)


def test_offsets_of_a_deleted_topic_that_count_for_the_next_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckpointFiles, "hold", lambda *_: False)
    monkeypatch.setattr(CheckpointFiles, "drop", lambda *_: None)
    assert "none" not in first_violation(AgainRun, KILL)


def test_records_of_a_deleted_topic_under_its_name_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_belongs_to_another", lambda *_: False)
    monkeypatch.setattr(Store, "_put_away", lambda *_: True)
    assert "none" not in first_violation(AgainRun, KILL)
