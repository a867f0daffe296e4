"""The metadata log on a disk of its own, and what a node does when that disk fails."""

from pathlib import Path

from tests.nodes import BOTH, CONTROLLER, Node, Nodes, quorum_of, wait_for
from tests.stories.cluster_load import until_decided
from tests.stories.test_cluster_growing import RECORDS, consume, produce

METADATA_DIR = "metadata.log.dir"


def test_a_metadata_disk_that_fails_ends_its_node_and_the_others_go_on(tmp_path: Path) -> None:
    own = {METADATA_DIR: str(tmp_path / "metadata-{id}")}
    with Nodes(tmp_path, dict.fromkeys((1, 2, 3), BOTH), own) as nodes:
        leader = nodes[quorum_of(nodes).leader_id]
        others = [node.bootstrap for node in nodes if node is not leader]
        folder = Path(leader.settings[METADATA_DIR])
        assert (folder / "__cluster_metadata-0").is_dir()
        assert not (leader.folder / "__cluster_metadata-0").exists()
        leader.stop()
        leader.module = "tests.stories.failing_disk"
        leader.start()
        until_decided([leader.bootstrap], "tide")
        (folder / "failing").touch()
        until_decided(others, "its-disk-fails")
        process = leader.process
        assert process is not None
        wait_for(lambda: process.poll() is not None, "the node to end")
        leader.kill()
        assert process.returncode == 1
        told = leader.said()
        assert "can't go on without the metadata, and ends: see to the disk of" in told
        assert "Input/output error" in told
        until_decided(others, "without-it")
        (folder / "failing").unlink()
        leader.module = "tidelog"
        leader.start()
        until_decided([leader.bootstrap], "with-it-again")


def test_a_controller_alone_has_no_folder_but_that_of_the_metadata(tmp_path: Path) -> None:
    node = Node(1, CONTROLLER, tmp_path / "data", {METADATA_DIR: str(tmp_path / "metadata")})
    try:
        node.start()
        node.stop()
        node.start()
        assert (tmp_path / "metadata" / "meta.properties").exists()
        assert not node.folder.exists()
    finally:
        node.kill()


def test_data_and_metadata_are_found_again_in_their_folders(tmp_path: Path) -> None:
    node = Node(1, BOTH, tmp_path / "data", {METADATA_DIR: str(tmp_path / "metadata")})
    try:
        node.start()
        until_decided([node.bootstrap], "tide")
        produce(node.bootstrap, "tide")
        node.kill()
        node.start()
        assert consume(node.bootstrap, "tide", "readers") == RECORDS
    finally:
        node.kill()
