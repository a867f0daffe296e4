"""The settings file that comes with Apache Kafka makes a cluster of three: only ids, ports and folders are changed."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_server_properties import STOCK
from tests.nodes import Node, wait_for
from tests.raw import Connection
from tests.reading import create_topic
from tidelog.wire.keys import ApiKey

IDS = (1, 2, 3)
BOOTSTRAP = "controller.quorum.bootstrap.servers=localhost:9093\n"

pytestmark = pytest.mark.long


class StockNode(Node):
    """A node that is told everything by its file."""

    @property
    def file(self) -> Path:
        return self.folder.parent / f"server-{self.id}.properties"

    def write(self, controllers: str) -> None:
        text = STOCK.replace(BOOTSTRAP, f"{controllers}\n").replace("node.id=1", f"node.id={self.id}")
        text = text.replace(":9092", f":{self.port}").replace(":9093", f":{self.controller_port}")
        self.file.write_text(text.replace("/tmp/kraft-combined-logs", str(self.folder)))

    def options(self) -> list[str]:
        return ["--config", str(self.file)]


@contextmanager
def started(nodes: list[StockNode]) -> Generator[None]:
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait()
        yield
    finally:
        for node in nodes:
            if node.process is not None:
                node.kill()


def metadata(node: StockNode) -> Any:
    with Connection(node.bootstrap) as connection:
        return connection.ask(ApiKey.METADATA, 12, {"topics": None})


def check_is_one_cluster(nodes: list[StockNode]) -> None:
    """Each node knows all, topics can be made by any of them, and each leads some partitions."""
    wait_for(lambda: all(len(metadata(node).brokers) == len(IDS) for node in nodes), "all to know of each other")
    assert len({metadata(node).cluster_id for node in nodes}) == 1
    for node in nodes:
        create_topic(node.bootstrap, f"made-by-{node.id}", 6)
    names = {f"made-by-{node.id}" for node in nodes}
    wait_for(lambda: all({topic.name for topic in metadata(node).topics} == names for node in nodes), "all topics")
    for topic in metadata(nodes[0]).topics:
        assert {partition.leader_id for partition in topic.partitions} == set(IDS)


@pytest.mark.parametrize("begins", ["initial-controllers", "voters"])
def test_the_file_that_comes_with_kafka_makes_a_cluster_of_three(tmp_path: Path, begins: str) -> None:
    nodes = [StockNode(id, "", tmp_path / f"logs-{id}", {}) for id in IDS]
    servers = ",".join(f"localhost:{node.controller_port}" for node in nodes)
    voters = ",".join(f"{node.id}@localhost:{node.controller_port}" for node in nodes)
    initial = ",".join(f"{node.id}@localhost:{node.controller_port}:{node.directory_id}" for node in nodes)
    for node in nodes:
        if begins == "voters":
            node.write(f"controller.quorum.voters={voters}")
            node.format()
        else:
            node.write(f"controller.quorum.bootstrap.servers={servers}")
            node.format("--initial-controllers", initial)
    with started(nodes):
        check_is_one_cluster(nodes)
        for node in nodes:
            node.stop()
    with started(nodes):
        wait_for(lambda: all(len(metadata(node).topics) == len(IDS) for node in nodes), "what was made to be there")
