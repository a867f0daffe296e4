"""Controllers of Apache Kafka and of Tidelog take turns on their folders, and vote in one quorum.

The metadata folder of one starts the other; replaced one by one in a running quorum, either leads, understands what the
other wrote, and fetches the other's checkpoints. A broker of each kind looks on, and both know the same all the time.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.kafka.clients import make_topic
from tests.kafka.mixed import Kind, Member, MixedCluster, ask, three_controllers, wait_for
from tests.nodes import BROKER, CONTROLLER
from tests.raw import Connection
from tidelog.wire.keys import ApiKey

TIDELOG, APACHE = Kind.TIDELOG, Kind.APACHE
OTHER = {TIDELOG: APACHE, APACHE: TIDELOG}
TOPIC_RESOURCE = 2
DYNAMIC_TOPIC_CONFIG = 1
CHECKPOINTS = {
    # After each few changes a checkpoint, and the log below the newest one is cut off.
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.retention.bytes": "1",
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def known(address: str) -> Any:
    """Topics, their ids, partitions, replicas and settings, as a broker knows them."""
    with Connection(address) as connection:
        topics = connection.ask(ApiKey.METADATA, 12, {"topics": None}).topics
        resources = [
            {"resource_type": TOPIC_RESOURCE, "resource_name": topic.name, "configuration_keys": None}
            for topic in topics
        ]
        results = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources}).results
        configs = {
            result.resource_name: {
                config.name: config.value for config in result.configs if config.config_source == DYNAMIC_TOPIC_CONFIG
            }
            for result in results
        }
    return {
        topic.name: (
            topic.topic_id,
            sorted((one.partition_index, tuple(one.replica_nodes), one.leader_id) for one in topic.partitions),
            configs[topic.name],
        )
        for topic in topics
    }


class Story:
    """What was changed so far, and that all brokers know it."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self.topics: dict[str, dict[str, str]] = {}

    @property
    def brokers(self) -> list[str]:
        return [node.bootstrap for node in self.cluster if node.is_broker and node.runs]

    def go_on(self, name: str) -> None:
        """A topic more, a setting of each one changed, and one topic less."""
        kept = list(self.topics)
        self.cluster.wait_until_let_in()  # a new controller may have fenced who didn't find it soon
        make_topic(self.cluster.bootstrap, name, *(["4"] * 20))
        self.topics[name] = {}
        if len(kept) > 2:
            self.change(ApiKey.DELETE_TOPICS, 5, {"topic_names": [kept[0]], "timeout_ms": 10_000})
            del self.topics[kept[0]]
        for number, topic in enumerate(self.topics):
            value = str(100_000 + number + len(name))
            self.topics[topic] = {"retention.ms": value}
            change = {"name": "retention.ms", "config_operation": 0, "value": value}
            resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": [change]}
            self.change(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
        self.check()

    def change(self, key: ApiKey, version: int, fields: dict[str, Any]) -> None:
        answer = ask(self.brokers[0], key, version, fields)
        assert answer is not None
        assert [result.error_code for result in answer.responses] == [0]

    def check(self) -> None:
        """All brokers know the same, and that is what was done."""

        def alike() -> bool:
            seen = [known(broker) for broker in self.brokers]
            told = {name: configs for name, (_, _, configs) in seen[0].items()}
            return told == self.topics and all(one == seen[0] for one in seen)

        wait_for(alike, f"all brokers to know {sorted(self.topics)}")


def mixed(kind: Kind) -> dict[int, Member]:
    return three_controllers(kind, {4: APACHE, 5: TIDELOG})


@pytest.mark.parametrize("first", [TIDELOG, APACHE], ids=["tidelog-first", "apache-first"])
def test_controllers_are_replaced_one_by_one(jars: Path, tmp_path: Path, first: Kind) -> None:
    """There and back: at each step there is a quorum of both, in which both lead."""
    with MixedCluster(tmp_path, mixed(first), CHECKPOINTS) as cluster:
        cluster.start()
        story = Story(cluster)
        story.go_on("begun")
        for then in (OTHER[first], first):
            for id in (1, 2, 3):
                node = cluster[id]
                node.stop()
                node.kind = then
                node.start()
                cluster.wait_until_caught_up(id)
                story.go_on(f"{node.kind.name}-{id}")
                if id == 2:
                    for led_by in (3, 2):
                        cluster.have_lead(led_by)
                        story.go_on(f"{then.name}-led-by-{cluster[led_by].kind.name}")


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("first", [TIDELOG, APACHE], ids=["tidelog-first", "apache-first"])
def test_all_controllers_start_as_the_other_kind(jars: Path, tmp_path: Path, first: Kind, end: str) -> None:
    with MixedCluster(tmp_path, mixed(first), CHECKPOINTS) as cluster:
        cluster.start()
        story = Story(cluster)
        for turn, kind in enumerate((first, OTHER[first], first)):
            if turn:
                for node in cluster.controllers:
                    getattr(node, end)()
                    node.kind = kind
                cluster.start(1, 2, 3)
                cluster.active_controller()
                story.check()
            story.go_on(f"turn-{turn}")


@pytest.mark.parametrize("leader", [TIDELOG, APACHE], ids=["from-tidelog", "from-apache"])
def test_a_checkpoint_is_fetched_from_the_other_kind(jars: Path, tmp_path: Path, leader: Kind) -> None:
    """Tidelog cuts its log below a checkpoint at once, Apache Kafka looks once a minute: so it is Tidelog's log."""
    with MixedCluster(tmp_path, {1: (TIDELOG, CONTROLLER), 5: (TIDELOG, BROKER)}, CHECKPOINTS) as cluster:
        cluster.start()
        story = Story(cluster)
        for turn in range(4):
            make_topic(cluster.bootstrap, f"turn-{turn}", *(["5"] * 20))
            story.topics[f"turn-{turn}"] = {}
        story.check()
        if leader is APACHE:
            cluster[1].stop()
            cluster[1].kind = APACHE
            cluster[1].start()
        cluster.add(4, OTHER[leader], BROKER)
        cluster.start(4)
        story.check()
        metadata = cluster[4].folder / "__cluster_metadata-0"
        fetched = [path.name for path in metadata.glob("*.checkpoint") if not path.name.startswith("0" * 20)]
        assert fetched, "the log was fetched from its start"
        assert min(path.stem for path in metadata.glob("*.log")) > "0" * 20
