"""The voters that a cluster begins with, as `kafka-storage format --initial-controllers` names them (KIP-853).

Each is `ID@HOST:PORT:DIRECTORY-ID`. All nodes are formatted with the same list, so that they begin with the same log;
the directory ids are in it since a voter is its disk, too.
"""

from collections.abc import Sequence

from tidelog.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.wire.uuids import ZERO_UUID, uuid_bytes

SHAPE = "ID@HOST:PORT:DIRECTORY-ID, as in 1@localhost:9093:JEXY6aqzQY-32P5TStzaFg"


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """The voters, each with an endpoint under the name `listener`. ValueError says what is wrong with which."""
    voters = [_parse(entry.strip(), listener) for entry in text.split(",")]
    _check_distinct("the node id", [str(voter.key.id) for voter in voters])
    _check_distinct("the directory id", [uuid.hex() for _, uuid in (voter.key for voter in voters)])
    return VoterSet(tuple(sorted(voters, key=lambda voter: voter.key.id)))


def _parse(entry: str, listener: str) -> Voter:
    id_text, at, rest = entry.partition("@")
    address, colon, directory_text = rest.rpartition(":")
    host, port_colon, port_text = address.rpartition(":")
    if not (at and colon and port_colon and host and id_text.isascii() and id_text.isdecimal()):
        raise ValueError(f"{entry!r} is no controller: expected {SHAPE}")
    if not (port_text.isascii() and port_text.isdecimal() and 0 < int(port_text) < 65536):
        raise ValueError(f"{entry!r} has no port between 1 and 65535: expected {SHAPE}")
    try:
        directory_id = uuid_bytes(directory_text)
    except ValueError:
        raise ValueError(f"{entry!r} has no directory id: expected {SHAPE}") from None
    if directory_id == ZERO_UUID or int(id_text) >= 2**31:
        raise ValueError(f"{entry!r} has an id that is reserved or too large: expected {SHAPE}")
    return Voter(ReplicaKey(int(id_text), directory_id), (Endpoint(listener, host.strip("[]"), int(port_text)),))


def _check_distinct(what: str, values: Sequence[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{what} of two controllers is the same, {value}: each has its own")
