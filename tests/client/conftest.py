"""One broker for all of these tests, the public one; each has a topic of its own."""

from itertools import count

import pytest

from tidelog.client import Admin
from tidelog.testing import Broker

NUMBERS = count()


@pytest.fixture(scope="session")
def tidelog_settings() -> dict[str, object]:
    return {"num.partitions": 2, "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}


@pytest.fixture
def bootstrap(tidelog_broker: Broker) -> str:
    return tidelog_broker.bootstrap


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
