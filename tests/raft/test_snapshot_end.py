"""A log that goes on behind a checkpoint ends in the checkpoint's epoch: a candidate is measured by it."""

import pytest

from tests.log.harness import LogHarness
from tests.raft.drivers import TWO, DrivenReplica, format_with_voters
from tidelog.raft.control import data_batch
from tidelog.raft.events import NO_LEADER, AnswerVote, LogEnd, VoteRequested
from tidelog.raft.snapshot import SnapshotId
from tidelog.raft.store_log import METADATA_CONFIG, StoreLog
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom


@pytest.fixture
def harness() -> LogHarness:
    return LogHarness(SimDisk(SimRandom(4)))


def opened(harness: LogHarness) -> StoreLog:
    log = StoreLog(harness.store, harness.timeline, harness.topic(METADATA_CONFIG))
    log.open(lambda _: None, lambda _: None)
    return log


def write(log: StoreLog, harness: LogHarness, count: int, epoch: int) -> None:
    for _ in range(count):
        log.append(data_batch([b"x"], log.end.offset, epoch, 5))
    harness.run(lambda: log.durable_end == log.end.offset)


@pytest.mark.parametrize(("candidate_end", "granted"), [(LogEnd(4, 500), False), (LogEnd(5, 100), True)])
def test_who_installed_a_checkpoint_has_no_vote_for_an_older_log(
    harness: LogHarness, candidate_end: LogEnd, granted: bool
) -> None:
    format_with_voters(harness, SnapshotId(100, 5))
    replica = DrivenReplica(harness)
    assert replica.driver.epoch == 5
    answer = replica.driver.answer_vote(VoteRequested(TWO, 7, candidate_end))
    assert answer == AnswerVote(TWO, 7, granted=granted, pre_vote=False, leader_id=NO_LEADER)


def test_log_behind_a_checkpoint_ends_in_its_epoch_also_after_a_restart(harness: LogHarness) -> None:
    log = opened(harness)
    write(log, harness, 3, epoch=2)
    log.begin_behind(SnapshotId(100, 5))
    assert (log.log_start, log.end) == (100, LogEnd(5, 100))
    harness.restart()
    log = opened(harness)
    log.begin_behind(SnapshotId(100, 5))
    assert (log.log_start, log.end) == (100, LogEnd(5, 100))
    write(log, harness, 2, epoch=6)
    assert log.end == LogEnd(6, 102)


def test_log_that_is_longer_but_of_an_older_epoch_than_the_checkpoint_goes(harness: LogHarness) -> None:
    log = opened(harness)
    write(log, harness, 8, epoch=2)
    log.begin_behind(SnapshotId(5, 3))
    assert (log.log_start, log.end) == (5, LogEnd(3, 5))


@pytest.mark.parametrize("snapshot", [SnapshotId(5, 2), SnapshotId(8, 2), SnapshotId(0, 0)])
def test_log_that_holds_what_the_checkpoint_does_stays(harness: LogHarness, snapshot: SnapshotId) -> None:
    log = opened(harness)
    write(log, harness, 8, epoch=2)
    log.begin_behind(snapshot)
    assert (log.log_start, log.end) == (0, LogEnd(2, 8))


def test_log_of_which_all_went_into_a_checkpoint_ends_in_its_epoch(harness: LogHarness) -> None:
    log = opened(harness)
    write(log, harness, 8, epoch=2)
    log.delete_before(SnapshotId(8, 2))
    assert (log.log_start, log.end) == (8, LogEnd(2, 8))
    harness.restart()
    log = opened(harness)
    log.begin_behind(SnapshotId(8, 2))
    assert (log.log_start, log.end) == (8, LogEnd(2, 8))
