"""Our metadata in Apache Kafka's hands, and its in ours."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.kafka.apache import ApacheKafka, tool
from tests.kafka.jars import kafka_jars
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import resolve_topic
from tidelog.controller import brokers
from tidelog.controller.activation import default_bootstrap
from tidelog.controller.brokers import Registration
from tidelog.controller.controller import Controller
from tidelog.controller.leaders import Defaults
from tidelog.controller.topics import create_partitions, create_topics, delete_topics
from tidelog.env.promise import Promise
from tidelog.env.real import real_environment
from tidelog.env.real_loop import RealLoop
from tidelog.env.slices import Steps, whole
from tidelog.log.store import Store
from tidelog.metadata.follow import Follower
from tidelog.metadata.image import ClusterImage, EndpointImage
from tidelog.metadata.versions import SUPPORTED
from tidelog.raft import folder as folders
from tidelog.raft.driver import RaftDriver
from tidelog.raft.settings import RaftSettings
from tidelog.raft.store_log import METADATA_CONFIG, StoreLog
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.records.metadata import Record, decode_record, encode_record
from tidelog.wire.uuids import uuid_text

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]

T = TypeVar("T")


class Node:
    """A controller of ours on a real folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stopped = False
        self.loop = RealLoop()
        self.env = real_environment(self.loop)
        self.config = BrokerConfig.parse({"log.dirs": str(folder)})
        endpoint = Endpoint("CONTROLLER", "localhost", 9093)
        identities, new = folders.open_folders(self.env, [str(folder)], 1, None)
        self.identity = identities[0]
        if new:
            bootstrap = [encode_record(record, 0) for record in default_bootstrap()]
            folders.format_metadata(self.env, str(folder), bootstrap, folders.alone(self.identity, endpoint))
            folders.format_folder(self.env, str(folder), self.identity)
        self.store = Store(self.env, [str(folder)], self.config)
        self.store.start()
        log = StoreLog(self.store, self.env.clock, resolve_topic(METADATA_CONFIG, self.config))
        local = Voter(ReplicaKey(1, self.identity.directory_id), (endpoint,))
        self.raft = RaftDriver(self.env, f"{folder}/{folders.METADATA_FOLDER}", local, log, RaftSettings())
        self.follower = Follower()
        records = [decode_record(value) for value in folders.read_bootstrap(self.env, str(folder))]
        self.controller = Controller(self.env, self.raft, self.follower, records, Defaults())
        self.wait(self.controller.start())

    @property
    def image(self) -> ClusterImage:
        return self.follower.image

    def wait(self, promise: Promise[T]) -> T:
        return self.loop.run_until(promise)

    def submit(self, decide: Callable[[ClusterImage, int], tuple[Sequence[Record], T]]) -> T:
        return self.wait(self.controller.submit(decide))

    def submit_steps(self, decide: Callable[[ClusterImage, int], Steps[tuple[Sequence[Record], T]]]) -> T:
        return self.wait(self.controller.submit_steps(decide))

    def write_some(self) -> None:
        """A broker, a topic of three partitions with a setting, one that grew, one that went."""
        registration = Registration(
            broker_id=1,
            cluster_id="",
            incarnation_id=self.env.random.uuid(),
            endpoints=(EndpointImage("PLAINTEXT", "localhost", 9092),),
            features=dict(SUPPORTED),
            log_dirs=(self.identity.directory_id,),
        )
        epoch = self.submit(lambda image, now_ms: whole(brokers.register(image, registration, "", Defaults())))
        self.submit(lambda image, now_ms: whole(brokers.unfence(image, 1, epoch, Defaults())))
        topics = [
            CreatableTopic(
                name="ours",
                num_partitions=3,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="retention.ms", value="1234567")],
            ),
            CreatableTopic(name="grows", num_partitions=1, replication_factor=1),
            CreatableTopic(name="goes", num_partitions=1, replication_factor=1),
        ]
        self.submit_steps(
            lambda image, now_ms: create_topics(
                image,
                CreateTopicsRequest(topics=topics),
                self.env.random.uuid,
                Defaults(),
                lambda topic, configs: configs,
                lambda configs: [],
            )
        )
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="grows", count=2, assignments=None)])
        self.submit_steps(lambda image, now_ms: create_partitions(image, more))
        self.submit_steps(lambda image, now_ms: delete_topics(image, DeleteTopicsRequest(topic_names=["goes"])))

    def stop(self) -> None:
        if self.stopped:
            return
        self.stopped = True
        self.raft.stop()
        self.wait(self.store.stop())
        self.loop.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kafka_jars()
    return tmp_path / "data"


@pytest.fixture
def node(folder: Path) -> Iterator[Node]:
    node = Node(folder)
    node.write_some()
    yield node
    node.stop()


def dumped(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """All that Kafka's dump says of a file, and the metadata records in it."""
    done = tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", str(path))
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in done.stdout
    assert "Found" not in done.stdout, done.stdout
    lines = (line.partition("payload: ")[2] for line in done.stdout.splitlines())
    return done.stdout, [json.loads(line) for line in lines if line]


def test_kafka_reads_our_metadata_log_and_snapshot(node: Node) -> None:
    metadata = node.folder / folders.METADATA_FOLDER
    node.wait(node.raft.take_snapshot())
    snapshot = metadata / node.raft.snapshots[-1].file_name
    topic_id = uuid_text(node.image.topics["ours"].id)
    node.stop()
    text, found = dumped(metadata / "00000000000000000000.log")
    assert 'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}' in text
    assert 'KRaftVersion {"version":0,"kRaftVersion":1}' in text
    kinds = [(record["type"], record["version"]) for record in found]
    assert kinds == [
        ("BEGIN_TRANSACTION_RECORD", 0),
        *[("FEATURE_LEVEL_RECORD", 0)] * 6,
        ("CONFIG_RECORD", 0),
        ("END_TRANSACTION_RECORD", 0),
        ("REGISTER_CONTROLLER_RECORD", 0),
        ("REGISTER_BROKER_RECORD", 4),
        ("BROKER_REGISTRATION_CHANGE_RECORD", 3),
        ("BROKER_REGISTRATION_CHANGE_RECORD", 0),
        ("TOPIC_RECORD", 0),
        ("CONFIG_RECORD", 0),
        *[("PARTITION_RECORD", 2)] * 3,
        *[("TOPIC_RECORD", 0), ("PARTITION_RECORD", 2)] * 2,
        ("PARTITION_RECORD", 2),
        ("REMOVE_TOPIC_RECORD", 0),
    ]
    text, found = dumped(snapshot)
    assert "SnapshotHeader" in text
    assert "KRaftVoters" in text
    assert "SnapshotFooter" in text
    assert {"type": "TOPIC_RECORD", "version": 0, "data": {"name": "ours", "topicId": topic_id}} in found
    dumped(node.folder / "bootstrap.checkpoint")
    dumped(metadata / "00000000000000000000-0000000000.checkpoint")


def described(kafka: ApacheKafka, name: str) -> str:
    done = tool("TopicCommand", "--bootstrap-server", kafka.bootstrap, "--describe", "--topic", name)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("snapshot", [False, True], ids=["log", "snapshot"])
def test_kafka_starts_on_our_metadata_and_we_on_what_it_wrote_then(node: Node, *, snapshot: bool) -> None:
    if snapshot:
        node.wait(node.raft.take_snapshot())
    before = node.image
    node.stop()
    with ApacheKafka(node.folder) as kafka:
        ours = described(kafka, "ours")
        assert f"TopicId: {uuid_text(before.topics['ours'].id)}" in ours
        assert "PartitionCount: 3" in ours
        assert "retention.ms=1234567" in ours
        assert "Leader: 1" in ours
        assert "PartitionCount: 2" in described(kafka, "grows")
        done = tool(
            "TopicCommand", "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "theirs", "--partitions", "2"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        kafka.stop()
    again = Node(node.folder)
    try:
        assert again.raft.epoch == 3
        assert set(again.image.topics) == {"ours", "grows", "theirs"}
        assert again.image.topics["ours"].id == before.topics["ours"].id
        assert len(again.image.topics["theirs"].partitions) == 2
        assert again.image.topic_config("ours") == {"retention.ms": "1234567"}
        again.image.check_invariants()
    finally:
        again.stop()


@pytest.mark.parametrize(("release", "level"), [("3.6", 14), ("3.9", 21), ("4.3", 30)])
def test_we_start_on_a_folder_with_static_voters_of_any_release(folder: Path, release: str, level: int) -> None:
    """kraft.version 0, as `kafka-storage format` leaves it with controller.quorum.voters; and then Kafka goes on."""
    kafka = ApacheKafka(folder)
    kafka.settings = {"controller.quorum.voters": f"1@127.0.0.1:{kafka.controller_port}"}
    config = kafka.write_config()
    cluster_id = "MkU3OEVBNTcwNTJENDM2Qk"
    done = tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config), "--release-version", release)
    assert done.returncode == 0, done.stdout + done.stderr
    node = Node(folder)
    try:
        assert node.raft.kraft_version == 0
        assert node.identity.cluster_id == cluster_id
        assert node.image.metadata_version == level
        node.write_some()
        node.wait(node.raft.take_snapshot())
    finally:
        node.stop()
    text, found = dumped(folder / folders.METADATA_FOLDER / "00000000000000000000.log")
    assert "KRaftVoters" not in text
    assert {record["version"] for record in found if record["type"] == "PARTITION_RECORD"} == {
        0 if level < 17 else 1 if level < 23 else 2
    }
    assert '"data_version":0' in (folder / folders.METADATA_FOLDER / "quorum-state").read_text()
    with kafka:
        assert "PartitionCount: 3" in described(kafka, "ours")
