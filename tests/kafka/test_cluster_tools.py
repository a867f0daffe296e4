"""Apache Kafka's tools say of a running Tidelog cluster what they say of one of Apache Kafka's.

The same commands are typed to both, to brokers (`--bootstrap-server`) and to controllers (`--bootstrap-controller`);
what they print is compared when ids that were made, ports, offsets and times are masked.
"""

import re
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kafka.apache import CLUSTER_ID, tool
from tests.kafka.clients import make_topic
from tests.kafka.mixed import Kind, Member, MixedCluster, three_controllers, wait_for
from tests.nodes import BOTH, CONTROLLER

QUORUM, CLUSTER, FEATURES, TOPICS = "MetadataQuorumCommand", "ClusterTool", "FeatureCommand", "TopicCommand"
CONFIGS, VERSIONS, DUMP = "kafka.admin.ConfigCommand", "BrokerApiVersionsCommand", "DumpLogSegments"
BROKERS = ("--bootstrap-server", "<brokers>")
CONTROLLERS = ("--bootstrap-controller", "<controllers>")
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}

Command = tuple[str, ...]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


class Said(NamedTuple):
    code: int
    lines: list[str]
    errors: list[str]
    """The kinds of exceptions that it tells of: the wording is each side's own."""


def described(at: Command) -> list[Command]:
    """Changes nothing."""
    return [
        (QUORUM, *at, "describe", "--status"),
        (QUORUM, *at, "describe", "--replication"),
        (QUORUM, *at, "describe", "--replication", "--human-readable"),
        (CLUSTER, "cluster-id", *at),
        (CLUSTER, "list-endpoints", *at),
        (CLUSTER, "list-endpoints", *at, "--include-fenced-brokers"),
        (FEATURES, *at, "describe"),
        (FEATURES, *at, "version-mapping", "--release-version", "4.3"),
        (FEATURES, *at, "feature-dependencies", "--feature", "transaction.version=2"),
        (CONFIGS, *at, "--entity-type", "brokers", "--entity-name", "1", "--describe"),
        (CONFIGS, *at, "--entity-type", "brokers", "--entity-default", "--describe"),
        (VERSIONS, *at),
    ]


def changed(at: Command) -> list[Command]:
    default = (CONFIGS, *at, "--entity-type", "brokers", "--entity-default")
    return [
        (FEATURES, *at, "downgrade", "--metadata", "4.2", "--dry-run"),
        (FEATURES, *at, "downgrade", "--metadata", "4.2"),
        (FEATURES, *at, "downgrade", "--feature", "group.version=0"),
        (FEATURES, *at, "describe"),
        (FEATURES, *at, "upgrade", "--feature", "group.version=1"),
        (FEATURES, *at, "upgrade", "--feature", "no.such.feature=1"),
        (FEATURES, *at, "upgrade", "--metadata", "4.3"),
        (FEATURES, *at, "upgrade", "--release-version", "4.3"),
        (FEATURES, *at, "disable", "--feature", "share.version", "--dry-run"),
        (*default, "--alter", "--add-config", "log.retention.ms=123456789"),
        (*default, "--describe"),
        (*default, "--alter", "--delete-config", "log.retention.ms"),
        (*default, "--describe"),
        (CLUSTER, "unregister", *at, "--id", "99"),
    ]


def topics(replicas: int) -> list[Command]:
    topic = (TOPICS, *BROKERS, "--topic", "tooled")
    configs = (CONFIGS, *BROKERS, "--entity-type", "topics", "--entity-name", "tooled")
    return [
        (*topic, "--create", "--partitions", "4", "--replication-factor", str(replicas)),
        (*topic, "--create", "--partitions", "4", "--replication-factor", str(replicas)),
        (*topic, "--describe"),
        (*topic, "--alter", "--partitions", "6"),
        (*configs, "--alter", "--add-config", "retention.ms=12345"),
        (*configs, "--describe"),
        (TOPICS, *BROKERS, "--describe", "--under-replicated-partitions"),
        (TOPICS, *BROKERS, "--list"),
        (*topic, "--delete"),
        (TOPICS, *BROKERS, "--list"),
    ]


class Shapes:
    """What tools print of one cluster, comparable with what they print of another."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self.known = {CLUSTER_ID: "<cluster>", **{node.directory_id: f"<disk-{node.id}>" for node in cluster}}

    def run(self, command: Command) -> Said:
        given = {"<brokers>": self.cluster.bootstrap, "<controllers>": self.cluster.bootstrap_controllers}
        done = tool(*(given.get(word, word) for word in command))
        kinds = sorted(set(re.findall(r"\b\w+(?:Exception|Error)\b", done.stderr)))
        return Said(done.returncode, self.lines(done.stdout, command), kinds)

    def lines(self, text: str, command: Command) -> list[str]:
        for node in self.cluster:
            text = re.sub(rf"\b{node.port}\b", f"<port {node.id}>", text)
            text = re.sub(rf"\b{node.controller_port}\b", f"<controller {node.id}>", text)
        text = re.sub(r"(?<![\w-])[\w-]{22}(?![\w-])", lambda found: self.known.get(found[0], "<uuid>"), text)
        text = re.sub(
            r"(\w*Epoch|LeaderId|HighWatermark|MaxFollower\w+|Leader|Isr|Replicas): *-?[\d,]+", r"\1: #", text
        )
        text = re.sub(r"(?<=Observers:)\s*\[.*\]", in_order, text)
        text = re.sub(r"\d+ ms ago", "# ms ago", text)
        text = re.sub(r"(No feature was updated|The update failed for all features).*", "<why not>", text)
        lines = [" ".join(line.split()) for line in text.splitlines()]
        if command[0] == VERSIONS:  # what is served is compared in same_answers
            lines = [line for line in lines if "->" in line]
        return sorted(
            re.sub(r"^(\d+ \S+) -?\d+ \d+ .*?(Leader|Follower|Observer)$", r"\1 # \2", line) for line in lines
        )


def in_order(listed: re.Match[str]) -> str:
    """A list of nodes, which Apache Kafka has in a hash map."""
    return " " + ", ".join(sorted(re.findall(r"{[^}]*}", listed[0])))


class Pair(NamedTuple):
    """The same nodes of each kind."""

    ours: Shapes
    theirs: Shapes

    def check(self, commands: list[Command]) -> None:
        apart = [told for command in commands for told in self.compare(command)]
        assert not apart, "\n".join(apart)

    def compare(self, command: Command) -> list[str]:
        ours, theirs = self.ours.run(command), self.theirs.run(command)
        if QUORUM in command:  # whoever leads
            roles = re.compile(r"(Leader|Follower)$")
            ours, theirs = (
                one._replace(lines=[roles.sub("Voter", line) for line in one.lines]) for one in (ours, theirs)
            )
        return [] if ours == theirs else [f"{' '.join(command)}\n  ours:   {ours}\n  theirs: {theirs}"]


COMBINED, APART = "combined", "apart"


def members(kind: Kind, layout: str) -> dict[int, Member]:
    if layout == COMBINED:
        return dict.fromkeys((1, 2, 3), (kind, BOTH))
    return three_controllers(kind, {4: kind, 5: kind})


@pytest.fixture(scope="module", params=[COMBINED, APART])
def pair(jars: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Generator[Pair]:
    folder = tmp_path_factory.mktemp(request.param)
    with (
        MixedCluster(folder / "tidelog", members(Kind.TIDELOG, request.param), SETTINGS) as ours,
        MixedCluster(folder / "apache", members(Kind.APACHE, request.param), SETTINGS) as theirs,
    ):
        for cluster in (ours, theirs):
            cluster.start()
            cluster.wait_until_let_in()
            for node in cluster:
                cluster.wait_until_caught_up(node.id)
        yield Pair(Shapes(ours), Shapes(theirs))


@pytest.mark.parametrize("at", [BROKERS, CONTROLLERS], ids=["brokers", "controllers"])
def test_tools_describe_a_cluster(pair: Pair, at: Command) -> None:
    pair.check(described(at))


@pytest.mark.parametrize("at", [BROKERS, CONTROLLERS], ids=["brokers", "controllers"])
def test_tools_change_a_cluster(pair: Pair, at: Command) -> None:
    pair.check(changed(at))


def test_tools_make_topics(pair: Pair) -> None:
    pair.check(topics(2))


def test_dump_log_reads_the_metadata_of_a_running_cluster(pair: Pair) -> None:
    """Records of the same kinds, in the log and in checkpoints; Apache's leader writes idle ones beside."""
    kinds: list[tuple[set[str], set[str]]] = []
    for shapes in pair:
        broker = next(str(node.id) for node in shapes.cluster if node.is_broker)
        for name in ("dumped", "dumped-too"):
            make_topic(shapes.cluster.bootstrap, name, *[broker] * 100)
        folder = shapes.cluster[1].folder / "__cluster_metadata-0"

        def checkpoint(folder: Path = folder) -> set[str]:
            return dumped([max(folder.glob("*.checkpoint"))])

        wait_for(lambda checkpoint=checkpoint: "TOPIC_RECORD" in checkpoint(), "a checkpoint with the topic")
        kinds.append((dumped(sorted(folder.glob("*.log"))), checkpoint()))
    ours, theirs = kinds
    assert ours[0] == theirs[0] - {"NO_OP_RECORD"}
    assert ours[1] == theirs[1]


def dumped(files: list[Path]) -> set[str]:
    """The kinds of records that the tool finds in these files, all of them sound."""
    done = tool(DUMP, "--cluster-metadata-decoder", "--files", ",".join(map(str, files)))
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in done.stdout
    kinds = set(re.findall(r'"type":"(\w+)"', done.stdout))
    return kinds | set(
        re.findall(r"\b(LeaderChange|KRaftVoters|KRaftVersion|SnapshotHeader|SnapshotFooter)\b", done.stdout)
    )


def test_controllers_and_brokers_come_and_go(jars: Path, tmp_path: Path) -> None:
    """A controller is added and removed, by brokers and by controllers; a broker that is gone is unregistered."""
    told: list[list[Said]] = []
    for kind in (Kind.TIDELOG, Kind.APACHE):
        with MixedCluster(tmp_path / kind.name, members(kind, APART)) as cluster:
            cluster.start()
            added = cluster.add(6, kind, CONTROLLER)
            cluster.start(6)
            cluster.wait_until_caught_up(6)
            told.append(come_and_go(cluster, added.config))
    apart = [
        f"step {step}\n  ours:   {our}\n  theirs: {their}"
        for step, (our, their) in enumerate(zip(*told, strict=True))
        if our != their
    ]
    assert not apart, "\n".join(apart)


def come_and_go(cluster: MixedCluster, config: Path) -> list[Said]:
    shapes = Shapes(cluster)
    directory = re.search(r"directory.id=(\S+)", (config.parent / "node-6" / "meta.properties").read_text())
    assert directory is not None
    shapes.known[directory[1]] = "<disk-6>"
    said: list[Said] = []
    for at in (BROKERS, CONTROLLERS):
        remove = ("remove-controller", "--controller-id", "6", "--controller-directory-id", directory[1])
        said += [
            shapes.run((QUORUM, "--command-config", str(config), *at, "add-controller", "--dry-run")),
            shapes.run((QUORUM, "--command-config", str(config), *at, "add-controller")),
            shapes.run((QUORUM, "--command-config", str(config), *at, "add-controller")),
            shapes.run((QUORUM, *at, "describe", "--status")),
            shapes.run((QUORUM, *at, *remove, "--dry-run")),
            shapes.run((QUORUM, *at, *remove)),
            shapes.run((QUORUM, *at, *remove)),
            shapes.run((CLUSTER, "list-endpoints", *at)),
        ]
    cluster[5].stop()
    said += [
        shapes.run((CLUSTER, "list-endpoints", *BROKERS, "--include-fenced-brokers")),
        shapes.run((CLUSTER, "unregister", *CONTROLLERS, "--id", "5")),
    ]
    wait_for(
        lambda: (
            "5" not in " ".join(shapes.run((CLUSTER, "list-endpoints", *BROKERS, "--include-fenced-brokers")).lines)
        ),
        "the broker to be forgotten",
    )
    return [*said, shapes.run((CLUSTER, "unregister", *BROKERS, "--id", "5"))]
