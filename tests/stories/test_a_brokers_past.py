"""Two brokers that were killed, of which one comes back: with its disk, with another one, or with an older copy.

Both have all that was acknowledged. So the first one to come back may lead, if it can show that it has it still.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nodes import BROKER, CONTROLLER, Node, Nodes, metadata_of, wait_for
from tests.raw import Connection
from tests.stories.test_cluster_growing import RECORDS, consume, produce
from tests.stories.test_replicated_topics import create, partition_of
from tidelog.wire.keys import ApiKey

NO_LEADER = -1


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    roles = {1: CONTROLLER, 2: BROKER, 3: BROKER}
    with Nodes(tmp_path, roles, {"offsets.topic.num.partitions": "1"}) as nodes:
        yield nodes


def described(node: Node, topic: str) -> Any:
    with Connection(node.bootstrap) as connection:
        answer = connection.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": topic}]})
    return answer.topics[0].partitions[0]


def both_in_sync(nodes: Nodes, topic: str) -> None:
    for node in (nodes[2], nodes[3]):
        if node.process is None:
            node.start()
    wait_for(lambda: len(metadata_of(nodes[3].bootstrap).brokers) == 2, "both brokers")
    create(nodes[3].bootstrap, topic, {"min.insync.replicas": "2"}, replicas=2)
    wait_for(lambda: bool(metadata_of(nodes[3].bootstrap, [topic]).topics[0].partitions), "the topic")
    assert sorted(partition_of(nodes[3].bootstrap, topic).isr_nodes) == [2, 3]
    produce(nodes.bootstrap, topic)


def all_are_there(nodes: Nodes, topic: str) -> None:
    assert consume(nodes.bootstrap, topic, f"readers of {topic}") == RECORDS


def both_are_killed(nodes: Nodes, topic: str) -> None:
    """Broker 2 first, so that the metadata says so of both."""
    nodes[2].kill()
    wait_for(lambda: partition_of(nodes[3].bootstrap, topic).isr_nodes == [3], "broker 2 to be fenced")
    assert described(nodes[3], topic).eligible_leader_replicas == [2]
    nodes[3].kill()


def without_leader(node: Node, topic: str) -> None:
    """From when broker 3 is fenced on, which may have died a moment ago."""
    wait_for(lambda: described(node, topic).leader_id != 3, "broker 3 to be fenced")
    assert described(node, topic).leader_id == NO_LEADER


def leads(node: Node, topic: str) -> Callable[[], bool]:
    return lambda: partition_of(node.bootstrap, topic).leader_id == node.id


def test_the_first_to_come_back_leads_also_from_where_its_folder_was_moved_to(nodes: Nodes) -> None:
    both_in_sync(nodes, "killed")
    both_are_killed(nodes, "killed")
    nodes[2].start()
    wait_for(leads(nodes[2], "killed"), "broker 2 to lead")
    nodes[3].start()
    wait_for(lambda: sorted(partition_of(nodes[2].bootstrap, "killed").isr_nodes) == [2, 3], "the other to catch up")
    all_are_there(nodes, "killed")
    assert "has all that its replicas of epoch" in nodes[2].said()

    both_in_sync(nodes, "moved")
    both_are_killed(nodes, "moved")
    nodes[2].folder = nodes[2].folder.rename(nodes[2].folder.with_name("elsewhere"))
    nodes[2].start()
    wait_for(leads(nodes[2], "moved"), "broker 2 to lead")
    nodes[3].start()
    wait_for(lambda: sorted(partition_of(nodes[2].bootstrap, "moved").isr_nodes) == [2, 3], "the other to catch up")
    all_are_there(nodes, "moved")


def test_who_comes_with_an_empty_disk_or_an_older_copy_waits_for_the_other(nodes: Nodes) -> None:
    both_in_sync(nodes, "copied")
    older = nodes[2].folder.with_name("older")
    shutil.copytree(nodes[2].folder, older)
    both_are_killed(nodes, "copied")
    shutil.rmtree(nodes[2].folder)
    older.rename(nodes[2].folder)
    nodes[2].start()
    assert "is a copy, perhaps an older one" in nodes[2].said()
    without_leader(nodes[2], "copied")
    found = described(nodes[2], "copied")
    assert (found.eligible_leader_replicas, found.last_known_elr) == ([3], [3])
    nodes[3].start()
    wait_for(lambda: partition_of(nodes[2].bootstrap, "copied").leader_id == 3, "the other one to lead")
    all_are_there(nodes, "copied")

    both_in_sync(nodes, "wiped")
    both_are_killed(nodes, "wiped")
    shutil.rmtree(nodes[2].folder)
    nodes[2].format("--no-initial-controllers")
    nodes[2].start()
    without_leader(nodes[2], "wiped")
    nodes[3].start()
    wait_for(lambda: partition_of(nodes[2].bootstrap, "wiped").leader_id == 3, "the other one to lead")
    all_are_there(nodes, "wiped")


def test_who_counted_the_page_cache_waits_for_the_other(nodes: Nodes) -> None:
    both_in_sync(nodes, "killed")
    create(nodes[3].bootstrap, "hasty", {"tidelog.durability": "os"}, replicas=2)
    wait_for(lambda: "after a kill this broker has to copy" in nodes[2].said(), "broker 2 to know of it")
    both_are_killed(nodes, "killed")
    nodes[2].start()
    without_leader(nodes[2], "killed")
    nodes[3].start()
    wait_for(lambda: partition_of(nodes[2].bootstrap, "killed").leader_id == 3, "the last leader to lead")
    all_are_there(nodes, "killed")


def test_a_leader_whose_disk_fails_for_one_partition_hands_that_one_over(tmp_path: Path) -> None:
    roles = {1: CONTROLLER, 2: BROKER, 3: BROKER}
    with Nodes(tmp_path, roles, {"tidelog.journal.bytes": "0", "offsets.topic.num.partitions": "1"}) as nodes:
        create(nodes[2].bootstrap, "worn", {"min.insync.replicas": "1"}, replicas=2)
        wait_for(lambda: bool(metadata_of(nodes[2].bootstrap, ["worn"]).topics[0].partitions), "the topic")
        failing = nodes[partition_of(nodes[2].bootstrap, "worn").leader_id]
        other = nodes[5 - failing.id]
        failing.stop()
        failing.module = "tests.stories.failing_disk"
        failing.start()
        wait_for(lambda: sorted(partition_of(other.bootstrap, "worn").isr_nodes) == [2, 3], "both to be in sync")
        elect_preferred(other)
        wait_for(lambda: partition_of(other.bootstrap, "worn").leader_id == failing.id, "it to lead again")
        (failing.folder / "failing").write_text("worn-0")
        produce(nodes.bootstrap, "worn")
        moved = partition_of(other.bootstrap, "worn")
        assert (moved.leader_id, moved.isr_nodes, moved.offline_replicas) == (other.id, [other.id], [failing.id])
        all_are_there(nodes, "worn")

        (failing.folder / "failing").unlink()
        failing.stop()
        failing.start()
        wait_for(lambda: sorted(partition_of(other.bootstrap, "worn").isr_nodes) == [2, 3], "it to have caught up")


def elect_preferred(node: Node) -> None:
    with Connection(node.bootstrap) as connection:
        fields = {"election_type": 0, "topic_partitions": None, "timeout_ms": 5000}
        assert not connection.ask(ApiKey.ELECT_LEADERS, 2, fields).error_code
