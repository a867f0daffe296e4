"""What `tidelog status` says of a cluster whose controllers are gone: more than that a broker can't be reached."""

from pathlib import Path

from tests.nodes import BOTH, Nodes, metadata_of, quorum_of, wait_for


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


def told(nodes: Nodes, id: int) -> str:
    return nodes[id].run("status", "--bootstrap", nodes[id].bootstrap).stdout
