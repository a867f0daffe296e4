"""What `tidelog status` says of a cluster whose controllers are gone: more than that a broker can't be reached."""

import time
from pathlib import Path

from tests.nodes import BOTH, BROKER, CONTROLLER, Nodes, metadata_of, quorum_of, wait_for


def test_status_says_that_no_controller_is_there_and_who_does_not_answer(tmp_path: Path) -> None:
    with Nodes(tmp_path, dict.fromkeys((1, 2, 3), BOTH)) as nodes:
        wait_for(lambda: len(metadata_of(nodes[3].bootstrap).brokers) == 3, "three brokers")
        leader_id = quorum_of(nodes).leader_id
        last = nodes[1] if leader_id != 1 else nodes[2]  # who follows is told of nothing by those that die
        lost = [node for node in nodes if node is not last]
        for node in lost:
            node.kill()
        wait_for(lambda: "knows no active controller" in told(nodes, last.id), "the quorum's loss")
        done = last.run("status", "--bootstrap", last.bootstrap)
        assert done.returncode == 3, done.stderr
        assert f"broker {last.id} knows no active controller" in done.stdout
        assert "more than half of the controllers 1, 2, 3" in done.stdout
        for node in lost:
            assert f"broker {node.id} doesn't answer" in done.stdout
        assert f"node {leader_id}, which led the metadata log" in last.said()


def test_status_names_a_controller_that_is_gone_while_the_others_go_on(tmp_path: Path) -> None:
    """Its broker was taken off the list, so that nobody would miss it."""
    with Nodes(tmp_path, dict.fromkeys((1, 2, 3), BOTH)) as nodes:
        wait_for(lambda: len(metadata_of(nodes[3].bootstrap).brokers) == 3, "three brokers")
        assert "All is well" in told(nodes, 3)
        nodes[1].kill()
        wait_for(lambda: "controller 1 of 1, 2, 3 is not heard" in told(nodes, 3), "the loss")
        assert "none of the others may be lost" in told(nodes, 3)


def test_status_and_describe_answer_soon_where_two_brokers_with_leaders_are_gone(tmp_path: Path) -> None:
    """Nobody takes their partitions, so that the dead still stand there as leaders: nobody waits for them."""
    with Nodes(tmp_path, dict.fromkeys((1, 2, 3), BOTH)) as nodes:
        wait_for(lambda: len(metadata_of(nodes[3].bootstrap).brokers) == 3, "three brokers")
        leader_id = quorum_of(nodes).leader_id
        last = nodes[1] if leader_id != 1 else nodes[2]
        last.run("topic", "create", "orders", "-p", "6", "-r", "3", "--bootstrap", last.bootstrap)
        wait_for(lambda: "All is well" in told(nodes, last.id), "all in sync")
        lost = [node for node in nodes if node is not last]
        for node in lost:
            node.kill()
        wait_for(lambda: "knows no active controller" in told(nodes, last.id), "the quorum's loss")
        began = time.monotonic()
        status = told(nodes, last.id)
        described = last.run("topic", "describe", "orders", "--bootstrap", last.bootstrap)
        assert time.monotonic() - began < 10
        for node in lost:
            assert f"broker {node.id} doesn't answer" in status
            assert f"offline: broker {node.id}, which leads it, doesn't answer" in status
            assert f"broker {node.id}, which leads it, doesn't answer" in described.stdout
        assert described.returncode == 0, described.stderr


def test_status_counts_partitions_with_replicas_out_of_sync_and_those_below_their_minimum(tmp_path: Path) -> None:
    with Nodes(tmp_path, {1: CONTROLLER, 2: BROKER, 3: BROKER, 4: BROKER}) as nodes:
        wait_for(lambda: len(metadata_of(nodes[2].bootstrap).brokers) == 3, "three brokers")
        for name, minimum in (("orders", 2), ("ledger", 3)):
            nodes[2].run(
                "topic", "create", name, "-p", "6", "-r", "3", "-c", f"min.insync.replicas={minimum}",
                "--bootstrap", nodes[2].bootstrap,
            )  # fmt: skip
        wait_for(lambda: "All is well" in told(nodes, 2), "all in sync")
        nodes[4].kill()
        wait_for(lambda: "out of sync   12 of 12 partitions" in told(nodes, 2), "the loss of broker 4")
        status = told(nodes, 2)
        assert "partitions with fewer replicas in sync than min.insync.replicas: 6." in status
        assert "partitions with fewer replicas in sync than they have: 6:" in status
        assert "orders-0 (in sync 2, 3 of 2, 3, 4)" in status
        assert "see that broker 4 runs" in status
        nodes[4].start()
        wait_for(lambda: "All is well" in told(nodes, 2), "all in sync again")


def test_status_at_a_broker_whose_controllers_have_lost_their_majority(tmp_path: Path) -> None:
    """The broker is no controller itself: it goes on following the one that led last, until it hears of another."""
    with Nodes(tmp_path, {1: CONTROLLER, 2: CONTROLLER, 3: CONTROLLER, 4: BROKER}) as nodes:
        wait_for(lambda: len(metadata_of(nodes[4].bootstrap).brokers) == 1, "the broker")
        leader_id = quorum_of(nodes).leader_id
        other = nodes[1] if leader_id != 1 else nodes[2]
        nodes[leader_id].kill()
        other.kill()
        wait_for(lambda: "knows no active controller" in told(nodes, 4), "the quorum's loss")
        assert "more than half of the controllers 1, 2, 3" in told(nodes, 4)


def told(nodes: Nodes, id: int) -> str:
    return nodes[id].run("status", "--bootstrap", nodes[id].bootstrap).stdout
