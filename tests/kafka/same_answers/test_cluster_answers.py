"""Three nodes of Tidelog's, brokers and controllers, answer clients and brokers as three of Apache Kafka's do."""

from pathlib import Path
from random import Random

import pytest

from tests.kafka.apache import CLUSTER_ID
from tests.kafka.mixed import Kind, MixedCluster
from tests.kafka.same_answers.allowed import ALLOWED, CLUSTER
from tests.kafka.same_answers.compare import differences
from tests.kafka.same_answers.scripts.cluster import SCRIPTS, Nodes
from tests.kafka.same_answers.side import Step
from tests.nodes import BOTH

SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "9000",
    "controller.quorum.fetch.timeout.ms": "20000",  # node 1 leads, and goes on leading
    "message.max.bytes": "1048588",
    "num.partitions": "1",
    "default.replication.factor": "1",
}


def played(kind: Kind, folder: Path) -> dict[str, list[Step]]:
    with MixedCluster(folder, dict.fromkeys((1, 2, 3), (kind, BOTH)), SETTINGS) as cluster:
        cluster.start()
        cluster.wait_until_let_in()
        cluster.have_lead(1)
        cluster.wait_until_let_in()
        one, two = cluster[1], cluster[2]
        nodes = Nodes(kind.value, two.bootstrap, one.controller_address, two.controller_address, CLUSTER_ID)
        transcripts: dict[str, list[Step]] = {}
        try:
            nodes.broker.settle()
            for script in SCRIPTS:
                nodes.broker.transcript.clear()
                script(nodes, Random(1))
                transcripts[script.__name__] = list(nodes.broker.transcript)
        finally:
            nodes.close()
    return transcripts


@pytest.mark.long
@pytest.mark.timeout(400)
def test_three_nodes_answer_the_same(jars: Path, tmp_path: Path) -> None:
    theirs = played(Kind.APACHE, tmp_path / "apache")
    ours = played(Kind.TIDELOG, tmp_path / "tidelog")
    found = [one for name in theirs for one in differences(ours[name], theirs[name], ALLOWED + CLUSTER)]
    told = "\n".join(map(str, found))
    assert not found, f"{len(found)} places differ from Kafka's:\n{told}"
