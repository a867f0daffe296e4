"""Apache Kafka is a peer: a broker of one lives under controllers of the other.

A broker is let in, serves topics to Java's clients, outlives the active controller, and has its leaders moved before it
stops. The same story is told with Apache Kafka's nodes alone, which shows that it is the story of a Kafka.
"""

from pathlib import Path

import pytest

from tests.kafka.clients import make_topic, read, read_as_group, write, write_in_transactions
from tests.kafka.mixed import Kind, MixedCluster, three_controllers, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

LINES = [f"line {number}" for number in range(100)]


BROKERS = pytest.mark.parametrize(
    ("controllers", "broker", "other"),
    [
        pytest.param(Kind.APACHE, Kind.APACHE, Kind.APACHE, id="apache-alone"),
        pytest.param(Kind.APACHE, Kind.TIDELOG, Kind.APACHE, id="tidelog-under-apache"),
        pytest.param(Kind.TIDELOG, Kind.APACHE, Kind.TIDELOG, id="apache-under-tidelog"),
    ],
)


@BROKERS
def test_a_broker_lives_under_three_controllers(
    jars: Path, tmp_path: Path, controllers: Kind, broker: Kind, other: Kind
) -> None:
    with MixedCluster(tmp_path, three_controllers(controllers, {4: broker, 5: other})) as cluster:
        cluster.start()
        make_topic(cluster.bootstrap, "alone", "4")
        write(cluster.bootstrap, "alone", LINES)
        active = cluster.active_controller()
        active.kill()
        assert cluster.active_controller() is not active
        cluster.wait_until_let_in()  # a new controller may have fenced who didn't find it soon
        make_topic(cluster.bootstrap, "later", "4")
        make_topic(cluster.bootstrap, "two", "4:5")
        write(cluster.bootstrap, "later", LINES)
        assert read(cluster.bootstrap, "alone", 100) == LINES
        assert read(cluster.bootstrap, "later", 100) == LINES
        active.start()
        cluster.wait_until_caught_up(active.id)
        assert cluster.leaders("two") == [4]
        cluster[4].stop()
        wait_for(lambda: cluster.leaders("two") == [5] and cluster.leaders("alone") == [-1], "the leaders to move")
        cluster[4].start()
        wait_for(lambda: cluster.leaders("alone") == [4], "the broker to lead again")
        assert read(cluster.bootstrap, "alone", 100) == LINES


@BROKERS
def test_a_killed_broker_comes_back_when_its_old_session_is_over(
    jars: Path, tmp_path: Path, controllers: Kind, broker: Kind, other: Kind
) -> None:
    with MixedCluster(tmp_path, three_controllers(controllers, {4: broker, 5: other})) as cluster:
        cluster.start()
        make_topic(cluster.bootstrap, "alone", "4")
        make_topic(cluster.bootstrap, "two", "4:5")
        write(cluster.bootstrap, "alone", LINES)
        for _ in range(2):
            cluster[4].kill()
            cluster[4].start()
            wait_for(lambda: cluster.leaders("alone") == [4], "the broker to lead again")
            assert read(cluster.bootstrap, "alone", 100) == LINES
            assert cluster.leaders("two") == [5], "it was fenced"
        write(cluster.bootstrap, "alone", LINES)
        assert read(cluster.bootstrap, "alone", 200) == LINES + LINES


@BROKERS
def test_groups_and_transactions_under_three_controllers(
    jars: Path, tmp_path: Path, controllers: Kind, broker: Kind, other: Kind
) -> None:
    """Of one broker: its internal topics, blocks of producer ids and committed offsets outlive controllers."""
    with MixedCluster(tmp_path, three_controllers(controllers, {4: broker})) as cluster:
        cluster.start()
        make_topic(cluster.bootstrap, "ledger", "4")
        write(cluster.bootstrap, "ledger", LINES)
        assert read_as_group(cluster.bootstrap, "ledger", "readers", 60) == LINES[:60]
        write_in_transactions(cluster.bootstrap, "ledger", 50, "first")
        cluster.active_controller().kill()
        write_in_transactions(cluster.bootstrap, "ledger", 50, "second")
        write_in_transactions(cluster.bootstrap, "ledger", 50, "first")
        assert read_as_group(cluster.bootstrap, "ledger", "readers", 40) == LINES[60:]
        assert len(read_as_group(cluster.bootstrap, "ledger", "readers", 150)) == 150
        cluster[4].kill()
        cluster[4].start()
        write_in_transactions(cluster.bootstrap, "ledger", 50, "second")
        assert len(read_as_group(cluster.bootstrap, "ledger", "readers", 50)) == 50
