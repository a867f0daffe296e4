"""What the active controller's log says of unclean elections."""

import pytest

from tests.metadata.images import TOPIC_ID, broker, image_of, topic
from tidelog.broker.election_lines import ElectionLines
from tidelog.controller import brokers
from tidelog.controller.leaders import Defaults
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.metadata.image import ClusterImage
from tidelog.wire.records.topics import PartitionChangeRecord

ALLOWED = Defaults(unclean_leader_election=True)


def fenced(partitions: int = 2) -> tuple[ClusterImage, ClusterImage]:
    """Broker 1, which alone was in sync in some partitions, and with broker 2 in the first one, falls silent."""
    image = image_of(broker(), broker(2), *topic(partitions=partitions, replicas=(1, 2)))
    alone = [
        PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, isr=[1], eligible_leader_replicas=[])
        for index in range(1, partitions)
    ]
    image = fold(image, alone, image.offset + 1, 1, 0)
    records, _ = whole(brokers.fence(image, 1, 6, ALLOWED))
    return image, fold(image, records, image.offset + 1, 1, 0)


@pytest.mark.parametrize(
    ("partitions", "named"),
    [(1, None), (2, "t-1 (broker 2)"), (40, "t-20 (broker 2) and 19 more")],
)
def test_unclean_elections_are_told_by_name(
    partitions: int, named: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = fenced(partitions)
    whole(ElectionLines(lambda: True).look(old, new, {TOPIC_ID: set(range(partitions))}, set()))
    assert [line.endswith(named or "") for line in caplog.messages] == ([True] if named else [])


def test_other_nodes_leave_that_to_the_active_controller(caplog: pytest.LogCaptureFixture) -> None:
    old, new = fenced()
    whole(ElectionLines(lambda: False).look(old, new, {TOPIC_ID: {0, 1}}, set()))
    assert not caplog.messages
