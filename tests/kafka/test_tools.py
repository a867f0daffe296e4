"""Apache Kafka's own command-line tools work against Tidelog and on its files."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.apache import tool
from tests.reading import create_topic
from tests.served import Tidelog

DUMP = "DumpLogSegments"


@pytest.fixture(scope="module")
def tidelog(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tidelog]:
    with Tidelog(tmp_path_factory.mktemp("tools") / "data") as broker:
        yield broker


def run(main_class: str, *args: str, input: str | None = None) -> str:
    """What a tool prints; an AssertionError where it fails."""
    done = tool(main_class, *args, input=input)
    assert done.returncode == 0, f"{main_class} {' '.join(args)} failed:\n{done.stdout}\n{done.stderr}"
    assert "Exception" not in done.stderr, done.stderr
    return done.stdout


def test_topics(tidelog: Tidelog) -> None:
    at = ("--bootstrap-server", tidelog.bootstrap)
    create = ("--create", "--topic", "tooled", "--partitions", "3", "--config", "retention.ms=60000")
    assert "Created topic tooled" in run("TopicCommand", *at, *create)
    described = run("TopicCommand", *at, "--describe", "--topic", "tooled")
    assert "PartitionCount: 3" in described
    assert "retention.ms=60000" in described
    assert described.count("Isr: ") == 3
    run("TopicCommand", *at, "--alter", "--topic", "tooled", "--partitions", "5")
    assert "PartitionCount: 5" in run("TopicCommand", *at, "--describe", "--topic", "tooled")
    assert "tooled" in run("TopicCommand", *at, "--list").split()
    run("TopicCommand", *at, "--delete", "--topic", "tooled")
    assert "tooled" not in run("TopicCommand", *at, "--list").split()


def test_configs(tidelog: Tidelog) -> None:
    create_topic(tidelog.bootstrap, "configured")
    at = ("--bootstrap-server", tidelog.bootstrap, "--topic", "configured")
    config = "kafka.admin.ConfigCommand"
    run(config, *at, "--alter", "--add-config", "retention.ms=1234,cleanup.policy=[compact,delete]")
    described = run(config, *at, "--describe")
    assert "retention.ms=1234" in described
    assert "cleanup.policy=compact,delete" in described
    run(config, *at, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in run(config, *at, "--describe")
    assert "segment.bytes=" in run(config, *at, "--describe", "--all")
    brokers = run(config, "--bootstrap-server", tidelog.bootstrap, "--entity-type", "brokers", "--describe", "--all")
    assert "log.retention.hours=" in brokers


def test_console_producer_and_consumer(tidelog: Tidelog) -> None:
    create_topic(tidelog.bootstrap, "console")
    at = ("--bootstrap-server", tidelog.bootstrap, "--topic", "console")
    lines = [f"key{i}\tvalue {i}" for i in range(50)]
    run("ConsoleProducer", *at, "--reader-property", "parse.key=true", input="\n".join(lines) + "\n")
    consume = ("--partition", "0", "--offset", "0", "--max-messages", "50", "--timeout-ms", "20000")
    shown = run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *at, *consume, "--formatter-property", "print.key=true"
    )
    assert shown.splitlines() == lines
    consume = ("--partition", "0", "--offset", "45", "--max-messages", "5", "--timeout-ms", "20000")
    assert run("org.apache.kafka.tools.consumer.ConsoleConsumer", *at, *consume).splitlines() == [
        f"value {i}" for i in range(45, 50)
    ]


def test_offsets_and_deleted_records(tidelog: Tidelog, tmp_path: Path) -> None:
    create_topic(tidelog.bootstrap, "offsets", 2)
    producer = Producer({"bootstrap.servers": tidelog.bootstrap})
    for number in range(10):
        producer.produce("offsets", b"%d" % number, partition=0)
    assert producer.flush(10) == 0
    at = ("--bootstrap-server", tidelog.bootstrap)
    topic = ("--topic", "offsets")
    assert run("GetOffsetShell", *at, *topic).split() == ["offsets:0:10", "offsets:1:0"]
    wanted = tmp_path / "wanted.json"
    parts = [{"topic": "offsets", "partition": 0, "offset": 4}]
    wanted.write_text(json.dumps({"partitions": parts, "version": 1}))
    assert "low_watermark: 4" in run("DeleteRecordsCommand", *at, "--offset-json-file", str(wanted))
    assert run("GetOffsetShell", *at, *topic, "--time", "earliest").split() == ["offsets:0:4", "offsets:1:0"]
    assert run("GetOffsetShell", *at, *topic, "--time", "max-timestamp").split()[0].startswith("offsets:0:")


def test_the_cluster_described(tidelog: Tidelog) -> None:
    at = ("--bootstrap-server", tidelog.bootstrap)
    assert "Cluster ID: " in run("ClusterTool", "cluster-id", *at)
    status = run("MetadataQuorumCommand", *at, "describe", "--status")
    assert "LeaderId:" in status
    assert "CurrentVoters:" in status
    assert "Leader" in run("MetadataQuorumCommand", *at, "describe", "--replication")
    assert "metadata.version" in run("FeatureCommand", *at, "describe")
    assert "Produce(0): 0 to 13" in run("BrokerApiVersionsCommand", *at)


def test_log_dirs(tidelog: Tidelog) -> None:
    create_topic(tidelog.bootstrap, "placed")
    producer = Producer({"bootstrap.servers": tidelog.bootstrap})
    producer.produce("placed", b"x" * 1000)
    assert producer.flush(10) == 0
    shown = run("LogDirsCommand", "--bootstrap-server", tidelog.bootstrap, "--describe", "--topic-list", "placed")
    told = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    [folder] = told["brokers"][0]["logDirs"]
    assert folder["logDir"] == str(tidelog.folder)
    [partition] = folder["partitions"]
    assert partition["partition"] == "placed-0"
    assert partition["size"] > 1000


@pytest.mark.parametrize(
    "codec", ["lz4", *(pytest.param(c, marks=pytest.mark.long) for c in ("none", "gzip", "snappy", "zstd"))]
)
def test_the_java_producer(tidelog: Tidelog, codec: str) -> None:
    """The idempotent producer of Kafka's own client, in every codec."""
    topic = f"perf-{codec}"
    create_topic(tidelog.bootstrap, topic)
    properties = (f"bootstrap.servers={tidelog.bootstrap}", f"compression.type={codec}", "acks=all")
    sized = ("--num-records", "5000", "--record-size", "200", "--throughput", "-1")
    shown = run("ProducerPerformance", "--topic", topic, *sized, "--producer-props", *properties)
    assert "5000 records sent" in shown
    assert run("GetOffsetShell", "--bootstrap-server", tidelog.bootstrap, "--topic", topic).split() == [
        f"{topic}:0:5000"
    ]


def test_dump_log_reads_every_file_of_a_partition(jars: Path, tmp_path: Path) -> None:
    settings = {"log.segment.bytes": "1048576", "log.index.interval.bytes": "4096"}
    with Tidelog(tmp_path / "data", settings) as broker:
        create_topic(broker.bootstrap, "dumped")
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 20,
                "log_level": 0,
            }
        )
        for number in range(3000):
            producer.produce("dumped", b"%06d" % number + b"." * 1000, headers={"h": b"v"})
            producer.poll(0)
        assert producer.flush(20) == 0
        del producer
        broker.stop()
    folder = broker.folder / "dumped-0"
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 2
    logs = run(DUMP, "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, segments)))
    assert "isvalid: false" not in logs
    assert logs.count("isvalid: true") > 2
    assert [int(line.split("payload: ")[1][:6]) for line in logs.splitlines() if "payload: " in line] == list(
        range(3000)
    )
    indexes = [*folder.glob("*.index"), *folder.glob("*.timeindex")]
    assert len(indexes) == 2 * len(segments)
    shown = run(DUMP, "--index-sanity-check", "--files", ",".join(map(str, sorted(indexes))))
    assert "Mismatches" not in shown
    assert shown.count("passed sanity check") >= len(indexes) - 2, shown
    checked = run(DUMP, "--verify-index-only", "--files", ",".join(map(str, sorted(indexes))))
    assert not [line for line in checked.splitlines() if "ismatch" in line or "Found" in line], checked
    snapshots = sorted(folder.glob("*.snapshot"))
    assert snapshots
    assert "producerId: " in run(DUMP, "--files", ",".join(map(str, snapshots)))


def test_dump_log_reads_the_metadata_log_and_its_snapshots(jars: Path, tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "noted", 2, {"retention.ms": "5000"})
        broker.stop()
    folder = broker.folder / "__cluster_metadata-0"
    logs = run(DUMP, "--cluster-metadata-decoder", "--files", ",".join(map(str, sorted(folder.glob("*.log")))))
    for kind in ("LeaderChange", "KRaftVoters", "FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD"):
        assert kind in logs, kind
    assert logs.count('"type":"PARTITION_RECORD"') >= 2
    assert '"name":"retention.ms","value":"5000"' in logs
    assert "isvalid: false" not in logs
    for snapshot in sorted(folder.glob("*.checkpoint")):
        shown = run(DUMP, "--cluster-metadata-decoder", "--files", str(snapshot))
        assert "SnapshotHeader" in shown
        assert "SnapshotFooter" in shown
