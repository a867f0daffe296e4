"""Listener strings, and what clients are told."""

import pytest

from tidelog.config import BrokerConfig, ConfigError
from tidelog.config.listeners import Listener


def refused(given: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse(given)
    return caught.value.message


def test_a_listener_is_advertised_as_it_is() -> None:
    config = BrokerConfig.parse({"listeners": "PLAINTEXT://localhost:0"})
    assert config.advertised_list == config.listener_list == (Listener("PLAINTEXT", "localhost", 0),)


def test_ipv6_hosts_stand_in_brackets() -> None:
    config = BrokerConfig.parse({"listeners": "PLAINTEXT://[::1]:9092"})
    assert config.listener_list == (Listener("PLAINTEXT", "::1", 9092),)
    assert str(config.listener_list[0]) == "PLAINTEXT://[::1]:9092"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_wildcard_needs_advertised_listeners(host: str) -> None:
    said = refused({"listeners": f"PLAINTEXT://{host}:9092"})
    assert "set advertised.listeners=PLAINTEXT://<host that clients reach>:9092" in said
    given = {"listeners": f"PLAINTEXT://{host}:9092", "advertised.listeners": "PLAINTEXT://queue.example:0"}
    assert BrokerConfig.parse(given).advertised_list == (Listener("PLAINTEXT", "queue.example", 0),)


def test_a_wildcard_can_not_be_advertised() -> None:
    said = refused({"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://0.0.0.0:9092"})
    assert "wildcard" in said


def test_several_listeners_with_names_of_their_own() -> None:
    config = BrokerConfig.parse(
        {
            "listeners": "INSIDE://10.0.0.1:9092, OUTSIDE://10.0.0.1:9093,CONTROLLER://10.0.0.1:9094",
            "advertised.listeners": "OUTSIDE://queue.example:443,INSIDE://10.0.0.1:9092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
    )
    assert [listener.name for listener in config.listener_list] == ["INSIDE", "OUTSIDE"]
    assert config.controller_listener_list == (Listener("CONTROLLER", "10.0.0.1", 9094),)
    assert config.advertised_list[0] == Listener("OUTSIDE", "queue.example", 443)


@pytest.mark.parametrize(
    "listeners",
    [
        "localhost:9092",
        "PLAINTEXT://localhost",
        "PLAINTEXT://localhost:x",
        "PLAINTEXT://::1:9092",
        "A B://h:1",
        "P://h:70000",
    ],
)
def test_what_is_no_listener_is_refused(listeners: str) -> None:
    assert "Invalid value" in refused({"listeners": listeners})


def test_a_listener_without_a_protocol_or_with_one_not_served_is_refused() -> None:
    assert "add INSIDE:PLAINTEXT" in refused({"listeners": "INSIDE://localhost:1"})
    assert "SSL" in refused({"listeners": "SSL://localhost:1"})
    assert "twice" in refused({"listeners": "PLAINTEXT://localhost:1,PLAINTEXT://localhost:2"})
    assert "for clients" in refused({"listeners": "CONTROLLER://localhost:1"})
    given = {"listeners": "PLAINTEXT://localhost:1", "advertised.listeners": "OTHER://localhost:1"}
    assert "listeners has no OTHER" in refused(given)
