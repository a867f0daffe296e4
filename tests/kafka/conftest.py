"""Everything here needs Java and Kafka's jars; with xdist, all of it runs in one process (`--dist loadgroup`)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.apache import ApacheKafka
from tests.kafka.jars import kafka_jars

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)
            item.add_marker(pytest.mark.xdist_group("kafka"))


@pytest.fixture(scope="session")
def jars() -> Path:
    return kafka_jars()


@pytest.fixture(scope="session")
def apache_kafka(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """One Apache Kafka for the whole session: tests use topics of their own and leave its settings alone.

    Its default for the size of a message stands in its configuration, as it does in Tidelog's beside it. Groups compute
    their assignments at once, as scripts that are to give the same answers each time need it.
    """
    settings = {"message.max.bytes": "1048588", "group.consumer.assignment.interval.ms": "0"}
    with ApacheKafka(tmp_path_factory.mktemp("apache") / "data", settings) as kafka:
        yield kafka
