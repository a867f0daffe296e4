"""Replicas of the metadata log that elect, follow, fall behind, load checkpoints, join, leave, and lose power."""

import logging

import pytest

from tests.raft.cluster import WRITE_EVERY_S, Cluster
from tidelog.raft.settings import RaftSettings


def test_three_voters_elect_a_leader_and_all_have_what_it_commits() -> None:
    cluster = Cluster(1, 3)
    cluster.leader()
    cluster.heal()
    assert len(cluster.leading()) == 1


@pytest.mark.parametrize(("voters", "observers"), [(1, 1), (1, 2), (3, 0), (3, 1), (5, 1)])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_committed_is_lost_whoever_votes(seed: int, voters: int, observers: int) -> None:
    cluster = Cluster(seed, voters, observers)
    cluster.suffer(30)
    cluster.heal()


@pytest.mark.parametrize("seed", range(4))
def test_nothing_committed_is_lost_where_the_voters_are_settings(seed: int) -> None:
    cluster = Cluster(seed, 3, observers=1, static=True)
    cluster.suffer(30)
    cluster.heal()
    assert {replica.node.driver.kraft_version for replica in cluster.replicas.values()} == {0}


@pytest.mark.parametrize("seed", range(4))
def test_observer_finds_its_leader_though_others_do_not_answer(seed: int) -> None:
    cluster = Cluster(seed, 3, observers=1)
    leader, observer = cluster.leader(), cluster.replicas[4]
    cluster.run(lambda: len(observer.node.driver.voters.ids) == 3)
    observer.crash(power_loss=False)
    cluster.blocked = {(4, id) for id in (1, 2, 3) if id != leader.id}
    observer.start()
    cluster.run(lambda: observer.node.driver.follows, seconds=1.0)


def test_full_disk_of_a_follower_is_told_once_and_asked_for_seldom(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(3, 3, settings=RaftSettings())
    leader = cluster.leader()
    follower = next(replica for replica in cluster.replicas.values() if replica is not leader)
    cluster.run(lambda: follower.node.driver.high_watermark > 10)
    caplog.clear()
    caplog.set_level(logging.INFO)
    follower.disk.capacity = follower.disk.used_bytes()
    cluster.settle(5 * WRITE_EVERY_S)
    cluster.writing = False  # the other one waits at the leader from now on, for half a second each time
    asked = cluster.sent["FetchRequest"]
    cluster.settle(30.0)
    told = [line for line in caplog.records if line.name == "tidelog.raft.follower"]
    assert [line.levelname for line in told] == ["ERROR"], "it is the same all the time"
    assert cluster.sent["FetchRequest"] - asked < 60 + 60, "it is sent again what it can't take, twice a second at most"
    follower.disk.capacity = None
    cluster.writing = True
    cluster.heal()
    assert "taken again" in caplog.text
