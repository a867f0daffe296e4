"""Replicas follow the image: what a change costs them."""

import sys
from types import FrameType

from tests.apis.sim_broker import NOW_MS, SimBroker
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.wire.records.metadata import PartitionChangeRecord

PARTITIONS = 10_000


def lines_run(port: SimBroker, records: list[PartitionChangeRecord]) -> int:
    """How many lines the broker runs to fold these records, and to have all of itself follow them."""
    follower, lines = port.services.metadata, 0
    image = follower.image

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        new = fold(image, records, image.offset + len(records), image.epoch, NOW_MS)
        whole(follower.publish(new, records))
    finally:
        sys.settrace(before)
    return lines


def test_one_partition_that_changes_in_a_wide_topic_is_looked_at_alone() -> None:
    """Also where all are open: of the others nobody hears anything."""
    port = SimBroker()
    port.make_topic("wide", partitions=PARTITIONS)
    topic = port.services.metadata.image.topics["wide"]
    watched = [port.partition("wide", index) for index in (0, 4321, PARTITIONS - 1)]
    epochs = [partition.leader_epoch for partition in watched]
    change = PartitionChangeRecord(partition_id=4321, topic_id=topic.id, leader=1)
    assert lines_run(port, [change]) < 1000
    assert [partition.leader_epoch for partition in watched] == [epochs[0], epochs[1] + 1, epochs[2]]
