"""One broker for all of these tests, the public one; each has a topic of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from tidelog.client import Admin
from tidelog.testing import Broker

NUMBERS = count()


SETTINGS = {
    "num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "log.retention.ms": -1,  # records of these tests are of 1970
}


@pytest.fixture(scope="session")
def client_broker() -> Iterator[Broker]:
    """Of its own: `tidelog_broker` is shared with tests that count on the defaults."""
    with Broker(SETTINGS) as broker:
        yield broker


@pytest.fixture
def bootstrap(client_broker: Broker) -> str:
    return client_broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """With two partitions."""
    name = f"tides-{next(NUMBERS)}"
    Admin(bootstrap).create_topic(name)
    return name


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    return "127.0.0.1:1"
