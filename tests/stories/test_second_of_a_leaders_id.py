"""Two processes have one node.id, and the first of them leads the metadata log: the second is told, and waits."""

from pathlib import Path

from tests.nodes import BOTH, Node, Nodes, wait_for


def test_the_second_process_says_that_the_leader_has_its_node_id(tmp_path: Path) -> None:
    """It said nothing for a minute, and then that no controller could be reached, of controllers that answered."""
    with Nodes(tmp_path, {1: BOTH}) as nodes:
        second = Node(
            1, BOTH, tmp_path / "second", {"controller.quorum.bootstrap.servers": nodes[1].controller_address}
        )
        second.launch()
        try:
            wait_for(lambda: "node 1 leads the metadata log, the other controllers say" in second.said(), "the warning")
            assert "each needs a node.id of its own" in second.said()
        finally:
            second.kill()
