"""What pytest gets from Tidelog: the fixture `tidelog_broker`. Pytest finds this module by its entry point."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker, SettingValue


@pytest.fixture(scope="session")
def tidelog_settings() -> "dict[str, SettingValue]":
    """Settings of `tidelog_broker`, by Kafka's names; override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def tidelog_broker(tidelog_settings: "dict[str, SettingValue]") -> "Iterator[Broker]":
    """A broker for the whole test session, in a process of its own: `tidelog_broker.bootstrap` is its address.

    Tests that stop or kill it, or need it empty, make their own with `tidelog.testing.Broker`.
    """
    from tidelog.testing.broker import Broker  # here, so that pytest runs without a broker don't pay for it

    with Broker(tidelog_settings) as broker:
        yield broker
