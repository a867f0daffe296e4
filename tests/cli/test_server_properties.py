"""Apache Kafka's own settings file starts a node; what only Kafka has is told, and what somebody relies on refused."""

from pathlib import Path

import pytest

from tidelog.cli.properties import parse_properties
from tidelog.cli.serve_flags import Given
from tidelog.cli.settings import gather
from tidelog.config.broker import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.config.setting import ConfigError

STOCK = """
# as it comes with Apache Kafka 4.3, of one node
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
OF_THREE = {
    "node.id": "2",
    "controller.quorum.bootstrap.servers": "kafka1:9093,kafka2:9093,kafka3:9093",
    "advertised.listeners": "PLAINTEXT://kafka2:9092,CONTROLLER://kafka2:9093",
    "offsets.topic.replication.factor": "3",
}


def read(tmp_path: Path, text: str) -> tuple[BrokerConfig, list[str]]:
    file = tmp_path / "server.properties"
    file.write_text(text)
    settings, warnings = gather(Given(config=str(file)), {})
    return BrokerConfig.parse(settings), warnings


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    return caught.value.message


def test_the_file_that_comes_with_kafka_is_that_of_a_cluster_of_one(tmp_path: Path) -> None:
    config, warnings = read(tmp_path, STOCK)
    assert config.folders == ("/tmp/kraft-combined-logs",)
    assert (config.is_broker, config.is_controller, config.other_controllers) == (True, True, ())
    (told,) = warnings
    assert told.endswith(
        "server.properties has settings of Apache Kafka's that change nothing in Tidelog: num.io.threads, "
        "num.network.threads, share.coordinator.state.topic.min.isr, share.coordinator.state.topic.replication.factor"
    )


def test_one_of_three_nodes_is_reached_by_the_others(tmp_path: Path) -> None:
    config, _ = read(tmp_path, STOCK + "".join(f"{name}={value}\n" for name, value in OF_THREE.items()))
    assert config.other_controllers == (("kafka1", 9093), ("kafka3", 9093))
    assert config.controller_listener_list == (Listener("CONTROLLER", "0.0.0.0", 9093),)
    assert config.advertised_list == (Listener("PLAINTEXT", "kafka2", 9092),)


def test_voters_may_be_named_instead(tmp_path: Path) -> None:
    lines = [line for line in STOCK.splitlines() if "bootstrap" not in line]
    voters = "controller.quorum.voters=1@kafka1:9093,2@kafka2:9093"
    config, _ = read(tmp_path, "\n".join([*lines, voters]))
    assert config.static_voters == ((1, "kafka1", 9093), (2, "kafka2", 9093))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "let everybody do everything",
        ),
        ("super.users=User:admin", "let everybody do everything"),
        ("ssl.keystore.location=/etc/kafka/keys.jks", "serve everybody"),
        ("sasl.enabled.mechanisms=SCRAM-SHA-256", "serve everybody"),
        ("listener.name.plaintext.sasl.enabled.mechanisms=PLAIN", "serve everybody"),
        ("remote.log.storage.system.enable=true", "no tiered storage"),
        ("create.topic.policy.class.name=com.example.Policy", "what the policy forbids"),
        ("config.providers=file", "place holders"),
    ],
)
def test_what_somebody_relies_on_is_refused(tmp_path: Path, line: str, why: str) -> None:
    said = refused(tmp_path, STOCK + line)
    assert f"server.properties asks for {line.partition('=')[0]}: " in said
    assert why in said


@pytest.mark.parametrize("line", ["authorizer.class.name=", "remote.log.storage.system.enable=false"])
def test_what_is_switched_off_is_passed_over(tmp_path: Path, line: str) -> None:
    _, (told,) = read(tmp_path, STOCK + line)
    assert line.partition("=")[0] in told


def test_a_name_that_kafka_does_not_know_either_is_refused(tmp_path: Path) -> None:
    assert "did you mean log.segment.bytes?" in refused(tmp_path, STOCK + "log.segmnt.bytes=1")


def test_the_broker_id_is_the_nodes(tmp_path: Path) -> None:
    assert read(tmp_path, "broker.id=7\n")[0].node_id == 7
    assert read(tmp_path, "broker.id=7\nnode.id=7\n")[0].node_id == 7
    assert "are the same setting" in refused(tmp_path, "broker.id=7\nnode.id=8\n")


def test_in_toml_what_only_kafka_has_is_passed_over_and_on_a_command_line_refused(tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text("num.io.threads = 8\nnum.partitions = 2\n")
    settings, (told,) = gather(Given(config=str(file)), {})
    assert settings["num.partitions"] == "2"
    assert told.endswith("change nothing in Tidelog: num.io.threads")
    settings, _ = gather(Given(set=("num.io.threads=8",)), {})
    with pytest.raises(ConfigError, match="Apache Kafka has it"):
        BrokerConfig.parse(settings)


def test_properties_are_read_as_java_reads_them() -> None:
    text = (
        "! a comment\n  # another\n\n"
        "a=1\nb: 2\nc 3\n  d  =  4 = 5  \ne\n"
        "list=one,\\\n    two,\\\n\tthree\n"
        "back\\\\slash\\=\\:name=C:\\\\data\\u0021\n"
        "tab=a\\tb\na=again\r\n# the last line goes on\\\nlast=\\"
    )
    assert parse_properties(text) == {
        "a": "again",
        "b": "2",
        "c": "3",
        "d": "4 = 5",
        "e": "",
        "list": "one,two,three",
        "back\\slash=:name": "C:\\data!",
        "tab": "a\tb",
        "last": "",
    }
    with pytest.raises(ValueError, match="invalid literal"):
        parse_properties("a=\\u12")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"server\.properties is no file of properties"):
        gather(Given(config=str(file)), {})
