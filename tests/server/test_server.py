"""How many connections, from where, how fast: bounds that hold, and let go when they are raised or someone leaves."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.raw import Connection
from tests.served import Tidelog
from tidelog.wire.keys import ApiKey


def serves(broker: Tidelog, timeout_s: float) -> bool:
    """Whether a new connection is served within the time."""
    try:
        with Connection(broker.bootstrap, timeout_s=timeout_s) as connection:
            connection.ask(ApiKey.API_VERSIONS, 0)
    except Exception:
        return False
    return True


def eventually(true: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it never came"


def change(connection: Connection, name: str, value: str) -> None:
    config = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
    answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}).responses[0]
    assert answer.error_code == 0, answer.error_message


@pytest.mark.parametrize("leaves", [True, False], ids=["someone leaves", "the bound is raised"])
def test_beyond_max_connections_new_ones_wait_until(tmp_path: Path, leaves: bool) -> None:
    with Tidelog(tmp_path / "data", {"max.connections": "3"}) as broker:
        inside = [Connection(broker.bootstrap) for _ in range(3)]
        for connection in inside:
            connection.ask(ApiKey.API_VERSIONS, 0)
        assert not serves(broker, 0.3)
        inside[0].ask(ApiKey.API_VERSIONS, 0)
        if leaves:
            inside.pop().close()
        else:
            change(inside[0], "max.connections", "100")
        eventually(lambda: serves(broker, 3.0))
        for connection in inside:
            connection.close()


def test_one_address_may_have_so_many_connections(tmp_path: Path) -> None:
    settings = {"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "127.0.0.2:4"}
    with Tidelog(tmp_path / "data", settings) as broker:
        first, second = (Connection(broker.bootstrap) for _ in range(2))
        first.ask(ApiKey.API_VERSIONS, 0)
        with Connection(broker.bootstrap) as third:
            assert third.is_closed()
        others = [socket.create_connection(("127.0.0.1", broker.port), 5, ("127.0.0.2", 0)) for _ in range(4)]
        second.ask(ApiKey.API_VERSIONS, 0)
        second.close()
        eventually(lambda: serves(broker, 1.0))
        for other in (first, *others):
            other.close()
        assert "max.connections.per.ip" in broker.said()


def test_connections_come_as_fast_as_the_rate_allows(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data", {"max.connection.creation.rate": "20"}) as broker:
        began = time.monotonic()
        assert all(serves(broker, 5.0) for _ in range(50))
        assert time.monotonic() - began > 1.0


def test_a_rate_of_none_lets_nobody_in_and_harms_nothing(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as broker, Connection(broker.bootstrap) as inside:
        change(inside, "max.connection.creation.rate", "0")
        assert not serves(broker, 0.3)
        inside.ask(ApiKey.API_VERSIONS, 0)
        change(inside, "max.connection.creation.rate", "1000")
        eventually(lambda: serves(broker, 2.0))
        assert "Traceback" not in broker.said(1000)
