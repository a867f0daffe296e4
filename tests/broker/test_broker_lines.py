"""What a node's log says of other brokers."""

import logging

import pytest

from tests.metadata.images import broker, image_of, topic
from tidelog.broker.broker_lines import BrokerLines
from tidelog.metadata.image import ClusterImage
from tidelog.wire.records.metadata import Record
from tidelog.wire.records.nodes import BrokerRegistrationChangeRecord


def image(*records: Record) -> ClusterImage:
    return image_of(*records, offset=20)


FENCED = image(broker(2, fenced=True))
IN = image(broker(2))
LEAVING = image(broker(2), BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=6, in_controlled_shutdown=1))
STOPPED = image(
    broker(2),
    BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=6, in_controlled_shutdown=1),
    BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=6, fenced=1),
)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (image(), FENCED, ["broker 2 is registered at localhost:9092, in epoch 6"]),
        (FENCED, IN, ["broker 2 is let in"]),
        (IN, LEAVING, ["broker 2 wants to stop: others lead what it led"]),
        (LEAVING, STOPPED, ["broker 2 is fenced: it leads nothing until it is let in again"]),
        (IN, image(), ["broker 2 is no longer registered"]),
        (IN, image(broker(2, epoch=9)), ["broker 2 is registered at localhost:9092, in epoch 9", "broker 2 is let in"]),
        (IN, image(broker(2), *topic()), []),
        (image(), image(broker(1)), []),
    ],
)
def test_what_became_of_another_broker(
    old: ClusterImage, new: ClusterImage, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "tidelog"):
        BrokerLines(1, lambda: True).look(old, new, {}, set())
    assert caplog.messages == said


def test_other_nodes_say_less(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tidelog"):
        BrokerLines(1, lambda: False).look(image(), FENCED, {}, set())
    assert caplog.messages == ["broker 2 is registered"]
