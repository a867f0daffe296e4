"""What a node's log says of who leads the metadata log."""

import logging

import pytest

from tests.log.harness import LogHarness
from tests.raft.drivers import ONE, THREE, TWO, DrivenReplica, format_with_voters
from tidelog.raft.events import LeaderHeard, TimedOut, VoteAnswered
from tidelog.raft.leader_lines import LeaderLines
from tidelog.raft.snapshot import SnapshotId
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom


@pytest.fixture
def replica(caplog: pytest.LogCaptureFixture) -> DrivenReplica:
    caplog.set_level(logging.INFO, "tidelog.raft.leader_lines")
    harness = LogHarness(SimDisk(SimRandom(4)))
    format_with_voters(harness, SnapshotId(0, 0))
    replica = DrivenReplica(harness)
    replica.driver.watch(LeaderLines(replica.driver).look)
    return replica


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [line.getMessage() for line in caplog.records if line.name == "tidelog.raft.leader_lines"]
    caplog.clear()
    return lines


def test_each_leader_is_told_once(replica: DrivenReplica, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        replica.driver.handle(LeaderHeard(TWO.id, 5))
    assert said(caplog) == ["node 2 leads the metadata log, in epoch 5"]
    replica.driver.handle(LeaderHeard(THREE.id, 6))
    assert said(caplog) == ["node 3 leads the metadata log, in epoch 6"]
    replica.driver.handle(LeaderHeard(THREE.id, 8))
    assert said(caplog) == ["node 3 leads the metadata log, in epoch 8"]


def test_outage_of_the_quorum_is_one_line(replica: DrivenReplica, caplog: pytest.LogCaptureFixture) -> None:
    replica.driver.handle(LeaderHeard(TWO.id, 5))
    said(caplog)
    for _ in range(20):
        replica.driver.handle(TimedOut())
        if replica.driver.leader_id != TWO.id:
            break
    lines = said(caplog)
    for _ in range(20):
        replica.driver.handle(TimedOut())
    assert lines + said(caplog) == [
        "node 2, which led the metadata log in epoch 5, leads it no longer or can't be reached: until more than half "
        "of the voters 1, 2, 3 elect another one, nothing can be changed"
    ]


def test_own_election_is_told(replica: DrivenReplica, caplog: pytest.LogCaptureFixture) -> None:
    replica.driver.handle(TimedOut())
    for pre_vote in (True, False):
        replica.driver.handle(VoteAnswered(TWO.id, replica.driver.epoch, granted=True, pre_vote=pre_vote))
    assert replica.driver.leader_id == ONE.id
    assert said(caplog) == ["this node leads the metadata log, in epoch 1"]
