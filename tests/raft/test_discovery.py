"""A node without a cluster learns its id from the controllers that it was told of, whenever they answer."""

import logging

import pytest

from tests.rpc.test_peer import PORT, Node, Reply, Town, after_versions
from tidelog.env import Environment
from tidelog.env.network import Socket
from tidelog.env.promise import Promise
from tidelog.log.partition_folders import FolderError
from tidelog.raft.discovery import learn_cluster_id
from tidelog.rpc.peer import Peers
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import framed
from tidelog.wire.header import response_header
from tidelog.wire.messages.describe_cluster import DescribeClusterResponse

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def controller(cluster_id: str, error: ErrorCode = ErrorCode.NONE) -> Reply:
    """It answers DescribeCluster with this."""

    def reply(node: Node, sock: Socket, key: int, version: int, correlation_id: int) -> bytes | None:
        response = DescribeClusterResponse(error_code=error, endpoint_type=2, cluster_id=cluster_id)
        body = encoder(DescribeClusterResponse, version)(response)
        return framed(response_header(key, version, correlation_id), body)

    return after_versions(reply)


class Newcomer:
    """A node that asks all three."""

    def __init__(self, town: Town, own_id: str | None = None) -> None:
        self.town = town
        self.stopped = False
        random = SimRandom(f"{town.seed}/newcomer")
        view = town.network.view("asks", "10.0.0.9")
        env = Environment(town.timeline, town.loop, SimDisk(random), view, random)
        self.peers = Peers(env, "raft", "raft-client-9")
        self.learnt: Promise[str] = learn_cluster_id(
            env, self.peers, [(host, PORT) for host in HOSTS], own_id=own_id, stopped=lambda: self.stopped
        )


def test_one_controller_of_three_is_enough() -> None:
    town = Town()
    Node(town, HOSTS[1], controller("tide"))
    newcomer = Newcomer(town)
    town.pass_time(10.0)
    assert newcomer.learnt.result() == "tide"


def test_it_waits_for_a_controller_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    town = Town()
    Node(town, HOSTS[0], controller("", ErrorCode.MISMATCHED_ENDPOINT_TYPE))
    with caplog.at_level(logging.WARNING):
        newcomer = Newcomer(town)
        town.pass_time(60.0)
    assert not newcomer.learnt.done
    said = [record.getMessage() for record in caplog.records]
    assert 2 <= len(said) <= 6, "once in a while"
    assert "10.0.0.1:9093, 10.0.0.2:9093, 10.0.0.3:9093" in said[0]
    assert "10.0.0.1:9093: that is a broker's listener" in said[0]
    assert "`tidelog format`" in said[0]
    Node(town, HOSTS[2], controller("tide"))
    town.pass_time(10.0)
    assert newcomer.learnt.result() == "tide"


def test_controllers_of_two_clusters_are_no_place_to_join() -> None:
    town = Town()
    for host, cluster_id in zip(HOSTS, ("tide", "tide", "ebb"), strict=True):
        Node(town, host, controller(cluster_id))
    newcomer = Newcomer(town)
    town.pass_time(10.0)
    with pytest.raises(FolderError, match=r"different clusters.*10\.0\.0\.3:9093 to ebb"):
        newcomer.learnt.result()


def test_a_node_of_another_cluster_is_told_so_and_one_of_the_same_is_not() -> None:
    town = Town()
    for host, cluster_id in zip(HOSTS, ("tide", "ebb"), strict=False):
        Node(town, host, controller(cluster_id))
    same, other = Newcomer(town, "tide"), Newcomer(town, "flood")
    town.pass_time(10.0)
    assert same.learnt.result() == "tide"
    with pytest.raises(FolderError, match=r"belong to cluster flood, but of the controllers 10\.0\.0\.2:9093 to ebb, "):
        other.learnt.result()


def test_a_node_that_is_stopped_asks_nobody_any_more() -> None:
    town = Town()
    newcomer = Newcomer(town)
    town.pass_time(5.0)
    newcomer.stopped = True
    newcomer.peers.close()
    late = Node(town, HOSTS[0], controller("tide"))
    town.pass_time(60.0)
    assert not newcomer.learnt.done
    assert late.asked == []
