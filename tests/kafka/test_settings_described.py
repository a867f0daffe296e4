"""What DescribeConfigs tells of a broker's settings that Apache Kafka has too: the same."""

from pathlib import Path
from typing import Any

from tests.kafka.apache import ApacheKafka
from tests.raw import Connection
from tests.served import Tidelog
from tidelog.wire.keys import ApiKey

BROKER = 4
OF_ITS_OWN = {"cluster.id"}
FIXED = {
    "listeners",
    "listener.security.protocol.map",
    *(
        f"log.cleaner.{name}"
        for name in ("backoff.ms", "dedupe.buffer.size", "io.buffer.load.factor", "io.buffer.size")
    ),
    *(f"log.cleaner.{name}" for name in ("io.max.bytes.per.second", "threads")),
}
"""Settings that can't be changed while the broker runs, as they can in Kafka."""


def described(bootstrap: str) -> dict[str, Any]:
    with Connection(bootstrap) as connection:
        asked = {"resources": [{"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}]}
        (result,) = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked).results
    return {entry.name: entry for entry in result.configs}


def test_settings_are_those_of_kafka(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as broker:
        ours = described(broker.bootstrap)
    theirs = described(apache_kafka.bootstrap)
    assert {name for name in ours.keys() - theirs.keys() if not name.startswith("tidelog.")} == OF_ITS_OWN
    for name in sorted(ours.keys() & theirs.keys()):
        our, their = ours[name], theirs[name]
        assert (name, our.config_type, our.is_sensitive) == (name, their.config_type, their.is_sensitive)
        assert our.read_only == (their.read_only or name in FIXED), name


def test_a_very_large_number_is_written_as_java_writes_it(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    name = "log.cleaner.io.max.bytes.per.second"
    with Tidelog(tmp_path / "data") as broker:
        assert described(broker.bootstrap)[name].value == described(apache_kafka.bootstrap)[name].value
