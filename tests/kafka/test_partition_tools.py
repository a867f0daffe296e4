"""Apache Kafka's tools for leaders and replicas work on a cluster of three Tidelog nodes.

The replicas don't copy data from each other yet, so a reassignment to a new broker stays under way: it is listed, and
cancelled.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.apache import tool
from tests.nodes import BOTH, Nodes, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "LeaderElectionCommand"


@pytest.fixture
def cluster(jars: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    with Nodes(tmp_path, {1: BOTH, 2: BOTH, 3: BOTH}, getattr(request, "param", None)) as nodes:
        yield nodes


def run(nodes: Nodes, main_class: str, *args: str) -> str:
    """What a tool prints; an AssertionError where it fails."""
    done = tool(main_class, "--bootstrap-server", nodes.bootstrap, *args)
    assert done.returncode == 0, f"{main_class} {' '.join(args)} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def reassign(nodes: Nodes, mode: str, replicas: dict[int, list[int]], *more: str) -> str:
    plan = next(iter(nodes)).folder.parent / "plan.json"
    partitions = [{"topic": "t", "partition": index, "replicas": wanted} for index, wanted in replicas.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return run(nodes, REASSIGN, "--reassignment-json-file", str(plan), mode, *more)


def partitions(nodes: Nodes) -> list[tuple[int, list[int], list[int]]]:
    """Leader, replicas and ISR of each partition, as any broker tells them."""
    found = AdminClient({"bootstrap.servers": nodes.bootstrap}).list_topics("t", timeout=20).topics["t"].partitions
    return [(found[index].leader, found[index].replicas, sorted(found[index].isrs)) for index in sorted(found)]


def test_replicas_change_places_and_the_preferred_one_leads(cluster: Nodes) -> None:
    run(cluster, "TopicCommand", "--create", "--topic", "t", "--replica-assignment", "1:2,2:1")
    assert "Valid replica already elected for partitions t-0" in run(
        cluster, ELECT, "--election-type", "preferred", "--topic", "t", "--partition", "0"
    )
    assert "Successfully started" in reassign(cluster, "--execute", {0: [2, 1]})
    verified = reassign(cluster, "--verify", {0: [2, 1]})
    assert "Reassignment of partition t-0 is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    assert partitions(cluster)[0] == (1, [2, 1], [1, 2])
    assert "Successfully completed leader election (PREFERRED) for partitions t-0" in run(
        cluster, ELECT, "--election-type", "preferred", "--all-topic-partitions"
    )
    wait_for(lambda: partitions(cluster)[0] == (2, [2, 1], [1, 2]), "broker 2 to lead")


@pytest.mark.parametrize("cluster", [{"leader.imbalance.check.interval.seconds": "1"}], indirect=True)
def test_preferred_replica_leads_by_itself_after_a_while(cluster: Nodes) -> None:
    run(cluster, "TopicCommand", "--create", "--topic", "t", "--replica-assignment", "1:2,2:1")
    reassign(cluster, "--execute", {0: [2, 1]})
    wait_for(lambda: partitions(cluster)[0] == (2, [2, 1], [1, 2]), "broker 2 to lead")


def test_reassignment_to_a_new_broker_is_listed_and_cancelled(cluster: Nodes) -> None:
    run(cluster, "TopicCommand", "--create", "--topic", "t", "--replica-assignment", "1:2,2:1")
    before = partitions(cluster)
    wanted = {0: [3, 1], 1: [3, 2]}
    assert "Successfully started partition reassignments for t-0,t-1" in reassign(cluster, "--execute", wanted)
    listed = run(cluster, REASSIGN, "--list")
    assert "t-0: replicas: 3,1,2. adding: 3. removing: 2." in listed
    assert "t-1: replicas: 3,2,1. adding: 3. removing: 1." in listed
    verified = reassign(cluster, "--verify", wanted)
    assert "Reassignment of partition t-0 is still in progress." in verified
    refused = tool(
        REASSIGN, "--bootstrap-server", cluster.bootstrap, "--execute",
        "--reassignment-json-file", str(next(iter(cluster)).folder.parent / "plan.json"),
    )  # fmt: skip
    assert refused.returncode != 0, "one is under way, and --additional isn't given"
    assert "Successfully cancelled partition reassignments for: t-0,t-1" in reassign(cluster, "--cancel", wanted)
    assert "No partition reassignments found." in run(cluster, REASSIGN, "--list")
    wait_for(lambda: partitions(cluster) == before, "the replicas from before")


def test_fewer_replicas_at_once_and_no_other_number_where_it_is_forbidden(cluster: Nodes) -> None:
    run(cluster, "TopicCommand", "--create", "--topic", "t", "--replica-assignment", "1:2:3")
    forbidden = tool(
        REASSIGN, "--bootstrap-server", cluster.bootstrap, "--execute", "--disallow-replication-factor-change",
        "--reassignment-json-file", str(_plan(cluster, [3, 2])),
    )  # fmt: skip
    assert "does not match" in forbidden.stdout + forbidden.stderr or forbidden.returncode != 0
    assert partitions(cluster) == [(1, [1, 2, 3], [1, 2, 3])]
    reassign(cluster, "--execute", {0: [3, 2]})
    wait_for(lambda: partitions(cluster) == [(3, [3, 2], [2, 3])], "two replicas, led by one that stays")


def _plan(nodes: Nodes, replicas: list[int]) -> Path:
    plan = next(iter(nodes)).folder.parent / "forbidden.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": replicas}]}))
    return plan


def test_unclean_election_takes_whoever_is_there(cluster: Nodes) -> None:
    """Broker 3 alone is left: the leader that stops last stays eligible, and 3 is taken only when that is asked for."""
    run(cluster, "TopicCommand", "--create", "--topic", "t", "--replica-assignment", "2:1")
    cluster[1].stop()
    wait_for(lambda: partitions(cluster) == [(2, [2, 1], [2])], "broker 1 to leave the ISR")
    cluster[1].start()
    cluster[2].stop()
    wait_for(lambda: partitions(cluster)[0][0] == -1, "no leader to be left")
    args = ("--topic", "t", "--partition", "0")
    preferred = tool(ELECT, "--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", *args)
    assert "PreferredLeaderNotAvailableException" in preferred.stdout + preferred.stderr
    run(cluster, ELECT, "--election-type", "unclean", *args)
    wait_for(lambda: partitions(cluster) == [(1, [2, 1], [1])], "broker 1 to lead")


def test_unclean_election_follows_when_the_topic_allows_it(cluster: Nodes) -> None:
    run(cluster, "TopicCommand", "--create", "--topic", "t", "--replica-assignment", "2:1")
    cluster[1].stop()
    wait_for(lambda: partitions(cluster) == [(2, [2, 1], [2])], "broker 1 to leave the ISR")
    cluster[1].start()
    cluster[2].stop()
    wait_for(lambda: partitions(cluster)[0][0] == -1, "no leader to be left")
    config = ("--topic", "t", "--alter", "--add-config", "unclean.leader.election.enable=true")
    run(cluster, "kafka.admin.ConfigCommand", *config)
    wait_for(lambda: partitions(cluster) == [(1, [2, 1], [1])], "broker 1 to lead")
