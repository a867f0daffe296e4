"""How nodes come to a cluster: who learns its id, who waits, who is refused, and what whoever started them is told."""

import os
import time
from pathlib import Path

import pytest

from tests.nodes import BOTH, BROKER, CLUSTER_ID, Node, Nodes, metadata_of, quorum_of, wait_for
from tests.stories.cluster_load import create_once, until_decided
from tidelog.wire.errors import ErrorCode

BOOTSTRAP = "controller.quorum.bootstrap.servers"


def cluster_id(node: Node) -> str:
    lines = (node.folder / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)["cluster.id"]


def ended(node: Node, timeout_s: float = 30.0) -> int:
    """It ends by itself; with which code."""
    process = node.process
    assert process is not None
    wait_for(lambda: process.poll() is not None, f"node {node.id} to end", timeout_s)
    node.kill()
    assert process.returncode is not None
    return process.returncode


def test_a_broker_on_an_empty_folder_waits_for_the_controller_and_learns_its_cluster(tmp_path: Path) -> None:
    first = Node(1, BOTH, tmp_path / "first", {})
    joins = Node(2, BROKER, tmp_path / "joins", {BOOTSTRAP: first.controller_address})
    try:
        joins.launch()
        wait_for(lambda: "waits for one of the controllers" in joins.said(), "the broker to say that it waits")
        joins.stop()  # it may be told to stop while it waits
        assert not (joins.folder / "meta.properties").exists(), "it made up an identity"
        joins.launch()
        first.start()
        joins.wait()
        assert cluster_id(joins) == cluster_id(first)
        assert {broker.node_id for broker in metadata_of(joins.bootstrap).brokers} == {1, 2}
        assert create_once(joins.bootstrap, "by-the-new-one", timeout_s=10.0) is ErrorCode.NONE
        assert [topic.name for topic in metadata_of(first.bootstrap).topics] == ["by-the-new-one"]
        joins.stop()
        joins.start()  # now it has an id, and asks no more than whether it is the right one
    finally:
        for node in (first, joins):
            if node.process is not None:
                node.kill()


def test_controllers_that_stand_in_the_settings_form_a_cluster(tmp_path: Path) -> None:
    """`controller.quorum.voters`, as in many a `server.properties`; a fourth node learns the cluster's id from them."""
    voters = [Node(id, BOTH, tmp_path / f"node-{id}", {}) for id in (1, 2, 3)]
    broker = Node(4, BROKER, tmp_path / "node-4", {})
    nodes = [*voters, broker]
    for node in nodes:
        node.settings["controller.quorum.voters"] = ",".join(f"{one.id}@{one.controller_address}" for one in voters)
    try:
        voters[0].launch()
        wait_for(lambda: "must be formatted before they are started" in voters[0].said(), "it to say what is missing")
        voters[0].kill()
        for node in voters:
            node.format()
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait()
        assert cluster_id(broker) == CLUSTER_ID
        assert quorum_of(nodes).voters == {1, 2, 3}
        until_decided([broker.bootstrap], "tide")
        leader = next(node for node in nodes if node.id == quorum_of(nodes).leader_id)
        leader.kill()
        until_decided([node.bootstrap for node in nodes if node is not leader], "tide-again")
        leader.start()
        assert quorum_of(nodes).voters == {1, 2, 3}
    finally:
        for node in nodes:
            if node.process is not None:
                node.kill()


def test_a_broker_whose_controllers_never_answer_ends_and_says_so(tmp_path: Path) -> None:
    settings = {BOOTSTRAP: "127.0.0.1:1", "initial.broker.registration.timeout.ms": "1500"}
    lonely = Node(2, BROKER, tmp_path / "lonely", settings)
    lonely.launch()
    assert ended(lonely) == 1
    assert (
        "tidelog: broker 2 was not registered within 1.5 s (initial.broker.registration.timeout.ms): none of the "
        in (lonely.said())
    )


def test_a_node_of_another_cluster_is_refused(tmp_path: Path) -> None:
    first = Node(1, BOTH, tmp_path / "first", {})
    other = Node(2, BROKER, tmp_path / "other", {BOOTSTRAP: first.controller_address})
    other.format("--no-initial-controllers")
    try:
        first.start()
        other.launch()
        assert ended(other) == 1
        assert f"the folders of this node belong to cluster {CLUSTER_ID}, but of the controllers" in other.said()
    finally:
        first.kill()


@pytest.mark.parametrize("roles", [BOTH, BROKER])
def test_a_broker_that_was_killed_is_back_at_once(tmp_path: Path, roles: str) -> None:
    """Its former self still has a session when it comes: that one is fenced since its connections broke."""
    shape = dict.fromkeys(range(1, 4), BOTH) if roles == BOTH else {1: BOTH, 2: BROKER}
    with Nodes(tmp_path, shape) as nodes:
        leader = quorum_of(nodes).leader_id
        node = next(one for one in nodes if one.roles == roles and one.id != leader)
        for _ in range(2):
            node.kill()
            began = time.monotonic()
            node.start()
            print(f"{roles}: back {time.monotonic() - began:.2f} s after kill -9")
        until_decided([node.bootstrap], "afterwards")


def test_the_second_process_of_an_id_waits_and_says_so_until_the_first_is_gone(tmp_path: Path) -> None:
    with Nodes(tmp_path, {1: BOTH, 2: BROKER}) as nodes:
        twin = Node(2, BROKER, tmp_path / "twin", {BOOTSTRAP: nodes[1].controller_address})
        try:
            twin.launch()
            wait_for(lambda: "another process is broker 2 in this cluster and lives" in twin.said(), "it to say so")
            assert create_once(nodes[2].bootstrap, "by-the-first", timeout_s=10.0) is ErrorCode.NONE
            nodes[2].stop()
            twin.wait()
            told = metadata_of(twin.bootstrap)
            assert (2, twin.port) in {(broker.node_id, broker.port) for broker in told.brokers}
        finally:
            if twin.process is not None:
                twin.kill()


def test_a_killed_broker_is_fenced_long_before_its_session_would_be_over(tmp_path: Path) -> None:
    with Nodes(tmp_path, {1: BOTH, 2: BROKER, 3: BROKER}) as nodes:
        for node in nodes:  # clients send there what is for the controller: to whom they reach, not to who just died
            assert metadata_of(node.bootstrap).controller_id == node.id
        nodes[3].kill()
        began = time.monotonic()
        wait_for(lambda: _brokers(nodes[2]) == {1, 2}, "broker 3 to be fenced", 5.0)
        print(f"fenced {time.monotonic() - began:.2f} s after kill -9")
        nodes[3].start()
        wait_for(lambda: _brokers(nodes[2]) == {1, 2, 3}, "broker 3 to be back")


def _brokers(node: Node) -> set[int]:
    return {broker.node_id for broker in metadata_of(node.bootstrap).brokers}


def test_listeners_without_a_host_are_for_this_machine_only(tmp_path: Path) -> None:
    """Until nodes have to say who they are: no other machine is let in unless somebody asked for that."""
    node = Node(1, BOTH, tmp_path / "node", {})
    node.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://:{node.controller_port}"
    try:
        node.start()
        assert _listening(node.pid) == {("127.0.0.1", node.port), ("127.0.0.1", node.controller_port)}
    finally:
        node.kill()


def _listening(pid: int) -> set[tuple[str, int]]:
    """The addresses of IPv4 on which this process listens, by what the kernel tells."""
    inodes: set[str] = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found: set[tuple[str, int]] = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            address, _, port = fields[1].partition(":")
            host = ".".join(str(byte) for byte in reversed(bytes.fromhex(address)))
            found.add((host, int(port, 16)))
    return found
