"""Three nodes and their clients, joined so that packets can be lost one way or both: by network namespaces.

Each node has one, with an address on a bridge where the clients are. A packet is lost by telling its sender a hardware
address that nobody has: nothing is refused, nothing comes back, as when a switch is broken. That takes neither a
firewall nor a kernel module. The namespaces lie inside one that belongs to this run alone (`inside.py`), and go with
it. Where there are none, `proxies.py` stands in.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tests.nodes import Node
from tools.chaos.faults import Split

CLIENTS = 0
"""Where clients are, beside the ids of nodes."""
BRIDGE = "hub"
NOBODY = "02:00:00:00:00:fe"


class Network(Protocol):
    what: str
    """How nodes are cut off, for the report."""

    def place(self, node: Node) -> None:
        """Make it a node of this network, before it is formatted."""
        ...

    def split(self, id: int, how: Split) -> None: ...

    def heal(self) -> None: ...

    def close(self) -> None: ...


def lost_ways(id: int, how: Split, ids: Iterable[int]) -> list[tuple[int, int]]:
    """Each (from, to) whose packets are lost."""
    others = [other for other in ids if other != id]
    if how is Split.ALL:
        others.append(CLIENTS)
    leaving = [(id, other) for other in others]
    arriving = [(other, id) for other in others]
    return {Split.OUT: leaving, Split.IN: arriving}.get(how, leaving + arriving)


class Namespaces:
    what = "each node in a network namespace of its own, joined by veth and a bridge"

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids = list(ids)
        self._lost: list[tuple[int, int]] = []
        Path("/run/netns").mkdir(exist_ok=True)
        _ip("link", "set", "lo", "up")
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("link", "set", BRIDGE, "address", _hardware(CLIENTS))
        _ip("addr", "add", f"{_address(CLIENTS)}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for id in self._ids:
            space = _space(id)
            _ip("netns", "add", space)
            _ip("link", "add", f"port{id}", "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", f"port{id}", "master", BRIDGE, "up")
            _ip("-n", space, "link", "set", "eth0", "address", _hardware(id))
            _ip("-n", space, "addr", "add", f"{_address(id)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
        for sender in [CLIENTS, *self._ids]:
            for receiver in [CLIENTS, *self._ids]:
                if sender != receiver:
                    self._tell(sender, receiver, _hardware(receiver))

    def place(self, node: Node) -> None:
        node.host = _address(node.id)
        node.prefix = ["nsenter", f"--net=/run/netns/{_space(node.id)}"]

    def split(self, id: int, how: Split) -> None:
        self._lost = lost_ways(id, how, self._ids)
        for sender, receiver in self._lost:
            self._tell(sender, receiver, NOBODY)

    def heal(self) -> None:
        for sender, receiver in self._lost:
            self._tell(sender, receiver, _hardware(receiver))
        self._lost = []

    def close(self) -> None:
        """Nothing is left of a namespace when its last process has ended."""

    def _tell(self, sender: int, receiver: int, hardware: str) -> None:
        where = ["dev", BRIDGE] if sender == CLIENTS else ["dev", "eth0"]
        space = [] if sender == CLIENTS else ["-n", _space(sender)]
        _ip(*space, "neigh", "replace", _address(receiver), "lladdr", hardware, "nud", "permanent", *where)


def _space(id: int) -> str:
    return f"node-{id}"


def _address(id: int) -> str:
    return f"10.77.0.{id + 1}"


def _hardware(id: int) -> str:
    return f"02:00:00:00:00:{id + 1:02x}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
