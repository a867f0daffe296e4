"""The list of controllers that a cluster begins with, as an operator writes it."""

import pytest

from tidelog.raft.initial_controllers import parse_initial_controllers
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter
from tidelog.wire.uuids import uuid_bytes

ONE, TWO = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"


def test_each_has_an_id_an_address_and_a_disk() -> None:
    voters = parse_initial_controllers(f"2@[::1]:9193:{TWO}, 1@host1.example.org:9093:{ONE}", "CONTROLLER")
    assert voters.voters == (
        Voter(ReplicaKey(1, uuid_bytes(ONE)), (Endpoint("CONTROLLER", "host1.example.org", 9093),)),
        Voter(ReplicaKey(2, uuid_bytes(TWO)), (Endpoint("CONTROLLER", "::1", 9193),)),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' is no controller"),
        (f"1@host:9093:{ONE},", "'' is no controller"),
        ("1@host:9093", "is no controller"),
        (f"x@host:9093:{ONE}", "is no controller"),
        (f"-1@host:9093:{ONE}", "is no controller"),
        (f"1@:9093:{ONE}", "is no controller"),
        (f"1@host:0:{ONE}", "no port between 1 and 65535"),
        (f"1@host:65536:{ONE}", "no port between 1 and 65535"),
        ("1@host:9093:short", "no directory id"),
        ("1@host:9093:AAAAAAAAAAAAAAAAAAAAAA", "reserved"),
        (f"2147483648@host:9093:{ONE}", "too large"),
        (f"1@a:9093:{ONE},1@b:9093:{TWO}", "the node id of two controllers is the same, 1"),
        (f"1@a:9093:{ONE},2@b:9093:{ONE}", "the directory id of two controllers is the same"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_initial_controllers(text, "CONTROLLER")
