"""What DescribeConfigs tells of a broker's listeners: the same as Apache Kafka."""

from pathlib import Path
from typing import Any

from tests.kafka.apache import ApacheKafka
from tests.raw import Connection
from tests.served import Tidelog
from tidelog.wire.keys import ApiKey


def advertised(bootstrap: str) -> Any:
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": ["advertised.listeners"]}
    with Connection(bootstrap) as connection:
        asked = {"resources": [resource], "include_synonyms": True}
        (result,) = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked).results
    (entry,) = result.configs
    return entry


def test_advertised_listeners_that_are_not_given_are_a_default_without_a_value(
    apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    """Also where `listeners` is given, which they follow: neither tells what they came to."""
    with Tidelog(tmp_path / "data") as broker:
        ours = advertised(broker.bootstrap)
    assert ours == advertised(apache_kafka.bootstrap)
    assert (ours.value, ours.config_source) == (None, 5)
