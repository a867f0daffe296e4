"""High watermarks over a restart: what a replica knew, it knows, and no more."""

from typing import Any

from tests.apis.sim_broker import SimBroker, in_transaction, marker
from tidelog.machine.decision import Decision
from tidelog.wire.records.metadata import PartitionChangeRecord

INTERVAL_S = 5.5


def of_three(broker: SimBroker, **more: Any) -> None:
    """The topic has other replicas, of which this broker knows nothing yet."""
    topic_id = broker.services.metadata.image.topics["tide"].id
    record = PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2, 3], isr=[1, 2, 3], **more)
    broker.wait(broker.services.controller.submit(lambda image, now_ms: Decision([record], None)))
    broker.services.replicas.in_sync = None
    broker.settle()


def restarted(broker: SimBroker) -> SimBroker:
    of_three(broker)
    return SimBroker(disk=broker.kill())


def test_a_leader_begins_with_the_high_watermark_that_was_written_down() -> None:
    broker = SimBroker()
    broker.make_topic("tide")
    broker.append("tide", b"a")
    broker.pass_time(INTERVAL_S)
    broker.append("tide", b"b")
    partition = restarted(broker).partition("tide")
    assert (partition.high_watermark, partition.log.durable_end) == (1, 2)


def test_a_transaction_is_open_while_its_marker_is_above_the_high_watermark() -> None:
    broker = SimBroker()
    broker.make_topic("tide")
    broker.append_own("tide", in_transaction(b"x", producer_id=7))
    broker.pass_time(INTERVAL_S)
    broker.append_own("tide", marker(7, commit=True))
    partition = restarted(broker).partition("tide")
    assert (partition.high_watermark, partition.log.durable_end) == (1, 2)
    assert partition.last_stable_offset == 0


def test_nothing_is_written_while_nothing_moves() -> None:
    broker = SimBroker()
    broker.make_topic("tide")
    broker.append("tide", b"a")
    broker.pass_time(2 * INTERVAL_S)
    written: list[str] = []
    renamed = broker.disk.renamed
    broker.disk.renamed = lambda *paths: written.append(str(paths))
    broker.pass_time(4 * INTERVAL_S)
    broker.disk.renamed = renamed
    assert [paths for paths in written if "replication-offset-checkpoint" in paths] == []
