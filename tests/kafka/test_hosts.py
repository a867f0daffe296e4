"""The machine that a Tidelog broker runs on, where Apache Kafka's controllers write the metadata."""

from pathlib import Path
from typing import Any

import pytest

from tests.kafka.mixed import Kind, MixedCluster, ask
from tests.nodes import BROKER, CONTROLLER
from tidelog.wire.keys import ApiKey

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

BROKER_RESOURCE = 4


def test_an_apache_controller_takes_it_and_apache_brokers_do_not_mind(jars: Path, tmp_path: Path) -> None:
    members = {1: (Kind.APACHE, CONTROLLER), 4: (Kind.TIDELOG, BROKER), 5: (Kind.APACHE, BROKER)}
    with MixedCluster(tmp_path, members) as cluster:
        cluster[4].settings["tidelog.host"] = "machine"
        cluster.start()
        resource = {"resource_type": BROKER_RESOURCE, "resource_name": "4", "configuration_keys": ["tidelog.host"]}
        answer: Any = ask(cluster[4].bootstrap, ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]})
        assert [one.value for one in answer.results[0].configs] == ["machine"]
        assert "doesn't take" not in cluster[4].said()
        both: Any = ask(cluster[5].bootstrap, ApiKey.METADATA, 4, {"topics": []})
        assert {broker.node_id for broker in both.brokers} == {4, 5}
        cluster[4].stop()
        cluster[4].start()
        cluster[5].stop()
