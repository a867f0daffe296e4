"""Other people's clients against our broker: `client` is each of them in turn, `topic` a fresh one."""

import itertools
import os
from collections.abc import Callable

import pytest

from tests.compat.clients import CLIENTS, Client
from tidelog.client import Admin
from tidelog.testing import Broker

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The broker under test; COMPAT_BOOTSTRAP names another one, such as an Apache Kafka, to check the stories."""
    other = os.environ.get("COMPAT_BOOTSTRAP")
    if other:
        return other
    broker: Broker = request.getfixturevalue("tidelog_broker")
    return broker.bootstrap


@pytest.fixture(params=sorted(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    return CLIENTS[request.param](bootstrap)


@pytest.fixture
def make_topic(bootstrap: str) -> Callable[..., str]:
    """Makes a topic with the given partitions and settings, and gives its name."""

    def make(partitions: int = 1, **settings: str) -> str:
        name = f"compat-{os.getpid()}-{next(_numbers)}"
        configs = {setting.replace("_", "."): value for setting, value in settings.items()}
        Admin(bootstrap).create_topic(name, partitions, 1, configs)
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic()
