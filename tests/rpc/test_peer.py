"""Asking other nodes from the loop: a real broker, splits and resets in the simulator, and peers that lie."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tidelog.env import Environment
from tidelog.env.network import Socket
from tidelog.env.promise import Promise, gather
from tidelog.env.real import real_environment
from tidelog.env.real_loop import RealLoop
from tidelog.rpc import bounds, exchange
from tidelog.rpc.errors import Lost, Unsent, Unsupported
from tidelog.rpc.peer import Peer, Peers, State, Watch
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.network import SimNetwork
from tidelog.sim.world.random import SimRandom
from tidelog.testing import Broker
from tidelog.wire.codec import encoder
from tidelog.wire.frame import FrameReader, framed
from tidelog.wire.header import read_header, response_header
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

PORT = 9093
LONG_BYTES = 5000
Reply = Callable[["Node", Socket, int, int, int], bytes | None]


def test_a_real_broker_answers_on_the_loop() -> None:
    with Broker() as broker:
        loop = RealLoop()
        host, _, port = broker.bootstrap.rpartition(":")
        told: list[int] = []
        peers = Peers(real_environment(loop), "control", "node-1", watch=Watch(connected=told.append))
        peer = peers.at(1, host, int(port))
        cluster = peer.ask(DescribeClusterRequest(), 10_000)
        metadata = peer.ask(MetadataRequest(topics=[]), 10_000)
        versions = peer.ask(ApiVersionsRequest(client_software_name="tidelog", client_software_version="1"), 10_000)
        loop.run_until(gather([cluster, metadata, versions]))
        assert isinstance(cluster.result(), DescribeClusterResponse)
        assert isinstance(metadata.result(), MetadataResponse)
        assert metadata.result().cluster_id == cluster.result().cluster_id
        assert {each.api_key for each in versions.result().api_keys} >= {ApiKey.METADATA, ApiKey.FETCH}
        assert told == [1]
        peers.close()
        with pytest.raises(Unsent, match=r"node 1 at .*control.*closed"):
            peer.ask(DescribeClusterRequest(), 1000).result()
        loop.close()


class Node:
    """Another node: it answers each request with what `reply` says, and remembers who asked."""

    def __init__(self, town: "Town", address: str, reply: Reply) -> None:
        self.asked: list[int] = []
        self.connections: list[Socket] = []
        self._reply = reply
        self._loop = SimLoop(town.timeline, SimRandom(f"{town.seed}/{address}"))
        self._listener = town.network.view(address, address).listen("", PORT, 10)
        self._loop.add_reader(self._listener.sockets[0], self._accept)

    def _accept(self) -> None:
        accepted = self._listener.accept(self._listener.sockets[0])
        assert accepted is not None
        sock, frames = accepted[0], FrameReader(1 << 20)
        self.connections.append(sock)
        self._loop.add_reader(sock, lambda: self._read(sock, frames))

    def _read(self, sock: Socket, frames: FrameReader) -> None:
        buffer = memoryview(bytearray(1000))
        try:
            count = sock.recv_into(buffer)
        except OSError:
            count = 0
        if not count:
            self._loop.remove_reader(sock)
            sock.close()
        for frame in frames.feed(buffer[:count]):
            header = read_header(frame, 0)
            self.asked.append(header.key)
            answer = self._reply(self, sock, header.key, header.version, header.correlation_id)
            try:
                while answer:
                    answer = answer[sock.send(answer) :]
            except OSError:
                sock.close()  # who asked has gone


class Town:
    """A node that asks, on a machine of its own."""

    def __init__(self, seed: int = 1, watch: Watch | None = None) -> None:
        self.seed = seed
        self.timeline = Timeline()
        self.network = SimNetwork(self.timeline, SimRandom(seed))
        self.loop = SimLoop(self.timeline, SimRandom(f"{seed}/asks"))
        random = SimRandom(f"{seed}/peers")
        disk = SimDisk(SimRandom(seed))
        env = Environment(self.timeline, self.loop, disk, self.network.view("asks", "10.0.0.9"), random)
        self.peers = Peers(env, "raft", "node-9", watch=watch)

    @property
    def peer(self) -> Peer:
        return self.peers.at(1, "10.0.0.1", PORT)

    def ask(self, timeout_ms: int = 1000) -> Promise[Any]:
        return self.peer.ask(DescribeClusterRequest(), timeout_ms)

    def pass_time(self, seconds: float = 2.0) -> None:
        self.timeline.run_until(lambda: False, self.timeline.now + seconds)

    def error(self, promise: Promise[Any]) -> BaseException:
        self.pass_time()
        assert promise.error is not None
        assert "node 1 at 10.0.0.1:9093 (raft)" in str(promise.error)
        return promise.error


def versions(correlation_id: int, version: int, *, error: int = 0, apis: tuple[int, ...] = (18, 60)) -> bytes:
    told = [ApiVersion(api_key=key, min_version=0, max_version=4 if key == 18 else 1) for key in apis]
    body = encoder(ApiVersionsResponse, version)(ApiVersionsResponse(error_code=error, api_keys=told))
    return framed(response_header(ApiKey.API_VERSIONS, version, correlation_id), body)


def described(correlation_id: int, version: int) -> bytes:
    body = encoder(DescribeClusterResponse, version)(
        DescribeClusterResponse(cluster_id=str(correlation_id), controller_id=1, brokers=[])
    )
    return framed(response_header(ApiKey.DESCRIBE_CLUSTER, version, correlation_id), body)


def kind(node: Node, sock: Socket, key: int, version: int, correlation_id: int) -> bytes | None:
    """As any broker answers; it knows DescribeCluster up to version 1."""
    if key == ApiKey.API_VERSIONS:
        return versions(correlation_id, version)
    assert version == 1, "the newest that both know"
    return described(correlation_id, version)


def after_versions(then: Reply) -> Reply:
    def reply(node: Node, sock: Socket, key: int, version: int, correlation_id: int) -> bytes | None:
        if key == ApiKey.API_VERSIONS:
            return versions(correlation_id, version)
        return then(node, sock, key, version, correlation_id)

    return reply


def silent(node: Node, sock: Socket, key: int, version: int, correlation_id: int) -> bytes | None:
    return None


def silent_on_its_first_connection(
    node: Node, sock: Socket, key: int, version: int, correlation_id: int
) -> bytes | None:
    if len(node.connections) > 1 or key == ApiKey.API_VERSIONS:
        return kind(node, sock, key, version, correlation_id)
    return None


def large(node: Node, sock: Socket, key: int, version: int, correlation_id: int) -> bytes | None:
    """Every second answer is so large that it is decoded in steps."""
    brokers = [DescribeClusterBroker(broker_id=each, host="host" * 20, port=1, rack=None) for each in range(1000)]
    response = DescribeClusterResponse(
        cluster_id=str(correlation_id), controller_id=1, brokers=brokers if correlation_id % 2 else []
    )
    body = encoder(DescribeClusterResponse, version)(response)
    return framed(response_header(key, version, correlation_id), body)


def test_large_answers_are_read_in_steps_and_come_in_order() -> None:
    town = Town()
    Node(town, "10.0.0.1", after_versions(large))
    order: list[str] = []
    for _ in range(2):
        town.ask().on_done(lambda promise: order.append(promise.result().cluster_id))
        town.ask().on_done(lambda promise: order.append(promise.result().cluster_id))
    town.pass_time()
    assert order == ["2", "3", "4", "5"]


def long(node: Node, sock: Socket, key: int, version: int, correlation_id: int) -> bytes | None:
    """Answers that are read into places of their own, and small ones between them."""
    hosts = 300 if correlation_id % 3 else 1
    brokers = [DescribeClusterBroker(broker_id=each, host="host" * 20, port=1, rack=None) for each in range(hosts)]
    response = DescribeClusterResponse(cluster_id=str(correlation_id), controller_id=1, brokers=brokers)
    body = encoder(DescribeClusterResponse, version)(response)
    assert (len(body) > LONG_BYTES) == (hosts > 1)
    return framed(response_header(key, version, correlation_id), body)


def test_long_answers_come_whole_whatever_comes_before_and_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LONG_BYTES", LONG_BYTES)
    for seed in range(5):
        town = Town(seed)
        Node(town, "10.0.0.1", after_versions(long))
        answers: list[tuple[str, int, int]] = []

        def note(promise: Promise[Any], answers: list[tuple[str, int, int]] = answers) -> None:
            brokers = promise.result().brokers
            answers.append((promise.result().cluster_id, len(brokers), brokers[-1].broker_id))

        for _ in range(5):
            town.ask().on_done(note)
        town.pass_time()
        many = 300, 299
        assert answers == [("2", *many), ("3", 1, 0), ("4", *many), ("5", *many), ("6", 1, 0)]


def test_versions_are_asked_once_and_each_request_has_its_own_answer() -> None:
    for seed in range(20):
        town = Town(seed)
        node = Node(town, "10.0.0.1", kind)
        asked = [town.ask() for _ in range(10)]
        town.pass_time()
        assert [promise.result().cluster_id for promise in asked] == [str(number) for number in range(2, 12)]
        assert node.asked == [18, *[60] * 10]


def test_who_does_not_know_our_greeting_is_greeted_in_version_0() -> None:
    def old(node: Node, sock: Socket, key: int, version: int, correlation_id: int) -> bytes | None:
        if key == ApiKey.API_VERSIONS:
            return versions(correlation_id, 0, error=35 if version else 0)
        return described(correlation_id, version)

    town = Town()
    node = Node(town, "10.0.0.1", old)
    asked = town.ask()
    town.pass_time()
    assert asked.result().cluster_id == "3"
    assert node.asked == [18, 18, 60]


LIES: list[tuple[Reply, str]] = [
    (lambda n, s, k, v, c: described(c + 1, v), "answer 3 came where 2 was expected"),
    (lambda n, s, k, v, c: b"\x7f\xff\xff\xff", "claims 2147483647 bytes"),
    (lambda n, s, k, v, c: b"\xff\xff\xff\xff", "claims -1 bytes"),
    (lambda n, s, k, v, c: framed(c.to_bytes(4, "big"), b"\0\xff\xff"), "can't be read"),
    (lambda n, s, k, v, c: described(c, v)[:9], "no answer to DescribeClusterRequest within 1000 ms"),
    (lambda n, s, k, v, c: None, "no answer to DescribeClusterRequest within 1000 ms"),
    (lambda n, s, k, v, c: s.close(), "closed the connection"),
]


@pytest.mark.parametrize(("lie", "said"), LIES)
def test_a_peer_that_does_not_keep_to_the_protocol_loses_its_connection(lie: Reply, said: str) -> None:
    broken: list[int] = []
    town = Town(watch=Watch(broken=lambda node_id, error: broken.append(node_id)))
    Node(town, "10.0.0.1", after_versions(lie))
    first, second = town.ask(), town.ask(60_000)
    assert said in str(town.error(first))
    assert isinstance(first.error, Lost)
    assert isinstance(town.error(second), Lost), "what is in flight fails with it, long before its own deadline"
    assert broken == [1]
    assert not town.network.connections("asks")


def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    town = Town()
    node = Node(town, "10.0.0.1", kind)
    town.ask()
    town.pass_time()
    node.connections[0].send(b"\0\0\0\x04")
    town.pass_time()
    assert not town.network.connections("asks")


@pytest.mark.parametrize("error", [35, 999])
def test_a_peer_that_does_not_tell_its_versions_is_lost(error: int) -> None:
    town = Town()
    Node(town, "10.0.0.1", lambda n, s, k, v, c: versions(c, 0, error=error))
    assert isinstance(town.error(town.ask(10_000)), Unsent)


def test_an_api_that_the_peer_does_not_serve_fails_alone() -> None:
    town = Town()
    Node(town, "10.0.0.1", kind)
    unknown = town.peer.ask(MetadataRequest(topics=[]), 1000)
    known = town.ask()
    assert isinstance(town.error(unknown), Unsupported)
    assert known.result().controller_id == 1


def test_where_nobody_listens_each_is_told_at_once_and_tries_become_rare() -> None:
    town = Town()
    tries: list[float] = []

    def again(promise: Promise[Any]) -> None:
        assert isinstance(promise.error, Unsent)
        tries.append(town.timeline.now)
        if len(tries) < 12:
            town.ask(60_000).on_done(again)

    town.ask(60_000).on_done(again)
    town.pass_time(30)
    waits = [later - sooner for sooner, later in pairwise(tries)]
    assert len(waits) == 11
    assert waits[0] < 0.15
    assert all(wait > 0.75 for wait in waits[5:])
    assert max(waits) < 1.35
    assert len(set(waits[5:])) > 1, "by chance, so that not all come back at once"


def told_by(told: list[str]) -> Watch:
    return Watch(connected=lambda _: told.append("connected"), broken=lambda _, why: told.append("broken"))


def test_a_split_ends_in_deadlines_and_heals() -> None:
    for seed in range(20):
        for one_way in (True, False):
            told: list[str] = []
            town = Town(seed, told_by(told))
            Node(town, "10.0.0.1", kind)
            before = town.ask()
            town.pass_time()
            before.result()
            town.network.split("10.0.0.1", "10.0.0.9", one_way=one_way)
            lost = town.ask(500)
            town.pass_time(0.4)
            assert not lost.done
            town.pass_time(0.2)
            assert isinstance(lost.error, Lost)
            assert not isinstance(lost.error, Unsent), "it may have been acted on"
            unsent = town.ask(500)
            town.pass_time(0.6)
            assert isinstance(unsent.error, Unsent)
            town.network.heal_all()
            town.pass_time(15)
            after = town.ask()
            town.pass_time()
            after.result()
            assert told == ["connected", "broken", "connected"]


def test_what_was_given_up_behind_a_split_does_not_arrive_when_it_heals() -> None:
    """Whoever asked may have asked another node meanwhile, and have gone on from there."""
    for seed in range(20):
        town = Town(seed)
        node = Node(town, "10.0.0.1", kind)
        before = town.ask()
        town.pass_time()
        before.result()
        heard = list(node.asked)
        town.network.split("10.0.0.9", "10.0.0.1", one_way=True)
        lost = town.ask(500)
        town.pass_time(1)
        assert isinstance(lost.error, Lost)
        town.network.heal_all()
        town.pass_time(15)
        assert ApiKey.DESCRIBE_CLUSTER not in node.asked[len(heard) :]


def test_a_reset_fails_what_is_in_flight_at_once_and_the_next_request_connects_again() -> None:
    for seed in range(20):
        town = Town(seed)
        node = Node(town, "10.0.0.1", silent_on_its_first_connection)
        lost = town.ask(60_000)
        town.pass_time(0.5)
        town.network.drop(town.network.connections("asks")[0])
        town.pass_time(0.1)
        assert isinstance(lost.error, Lost)
        again = town.ask()
        town.pass_time()
        again.result()
        assert len(node.connections) == 2


def test_no_more_waits_than_may() -> None:
    town = Town()
    Node(town, "10.0.0.1", after_versions(silent))
    asked = [town.ask(500) for _ in range(bounds.PEER_REQUESTS_MAX + 1)]
    assert [promise.done for promise in asked] == [False] * bounds.PEER_REQUESTS_MAX + [True]
    assert isinstance(asked[-1].error, Unsent)
    town.pass_time()
    assert all(promise.done for promise in asked)
    assert not town.ask().done


def test_a_node_that_moved_is_asked_at_its_new_address() -> None:
    town = Town()
    Node(town, "10.0.0.1", after_versions(silent))
    there = Node(town, "10.0.0.2", kind)
    old = town.peer
    lost = town.ask(60_000)
    town.pass_time(0.5)
    moved = town.peers.at(1, "10.0.0.2", PORT)
    assert moved is town.peers.at(1, "10.0.0.2", PORT)
    assert old.state is State.CLOSED
    assert isinstance(lost.error, Lost)
    answer = moved.ask(DescribeClusterRequest(), 1000)
    town.pass_time()
    answer.result()
    assert there.asked == [18, 60]
    town.peers.close()
    assert not town.network.connections("asks")


def test_a_peer_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    for seed in range(20):
        town = Town(seed)
        Node(town, "10.0.0.1", kind)
        asked = town.ask()
        town.timeline.run_until(lambda: False, 0.0001 * seed)
        town.peers.close()
        town.pass_time()
        assert isinstance(asked.error, Lost) or asked.done
        assert not town.network.connections("asks")
