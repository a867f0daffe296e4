"""An Apache Kafka follows a leader of ours: it has the same bytes, joins the ISR, and leads on from there."""

from pathlib import Path

import pytest

from tests.kafka.clients import make_topic
from tests.kafka.mixed import Kind, MixedCluster, wait_for
from tests.kafka.test_apache_leaders import APACHE, SETTINGS, TIDELOG, are_equal, batches, isr, produce
from tests.nodes import BROKER, CONTROLLER

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.mark.parametrize("controller", Kind)
def test_an_apache_follower_has_the_leaders_bytes_and_leads_on(jars: Path, tmp_path: Path, controller: Kind) -> None:
    members = {1: (controller, CONTROLLER), APACHE: (Kind.APACHE, BROKER), TIDELOG: (Kind.TIDELOG, BROKER)}
    with MixedCluster(tmp_path, members, SETTINGS) as cluster:
        cluster.start()
        make_topic(cluster.bootstrap, "tide", f"{TIDELOG}:{APACHE}")
        # Both are in sync, so that each acknowledgement waits for what the follower says.
        produce(cluster.bootstrap, "tide")
        produce(cluster.bootstrap, "tide", compression="lz4")
        wait_for(are_equal(cluster, "tide"), "the replicas to be equal")
        assert isr(cluster, "tide") == {APACHE, TIDELOG}
        cluster[APACHE].kill()
        wait_for(lambda: isr(cluster, "tide") == {TIDELOG}, "the follower to be fenced")
        produce(cluster[TIDELOG].bootstrap, "tide", records=50)
        cluster[APACHE].start()
        wait_for(lambda: isr(cluster, "tide") == {APACHE, TIDELOG}, "the follower to be in sync again")
        produce(cluster.bootstrap, "tide", records=50)
        before = batches(cluster[TIDELOG])
        cluster[TIDELOG].stop()
        wait_for(lambda: cluster.leaders("tide") == [APACHE], "the follower to lead")
        assert batches(cluster[APACHE]) == before
