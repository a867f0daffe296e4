"""Where there are no network namespaces: every listener of a node stands behind a proxy that knows who connects.

Who it is (another node, or a client) is found by the process that the connection's other end belongs to, as the kernel
tells in /proc. What is lost in one direction is held back, and goes on when that is over, as TCP would send it again; a
connection that is made meanwhile waits. Nothing of that is refused or reset.
"""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

from tests.nodes import Node
from tools.chaos.faults import Split
from tools.chaos.network import CLIENTS, lost_ways

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 1 << 16
CONNECT_S = 5.0


class Proxies:
    what = "proxies before every listener (no network namespaces here)"

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._lost: set[tuple[int, int]] = set()
        self._changed = threading.Condition()
        self._listeners: list[socket.socket] = []

    def place(self, node: Node) -> None:
        """It listens where it would have, and tells everybody of the proxies instead."""
        self._nodes[node.id] = node
        ports = node.port, node.controller_port
        node.settings["listeners"] = f"PLAINTEXT://{LOOPBACK}:{ports[0]},CONTROLLER://{LOOPBACK}:{ports[1]}"
        node.port, node.controller_port = (self._stand_before(node.id, port) for port in ports)
        told = f"PLAINTEXT://{LOOPBACK}:{node.port},CONTROLLER://{LOOPBACK}:{node.controller_port}"
        node.settings["advertised.listeners"] = told

    def split(self, id: int, how: Split) -> None:
        with self._changed:
            self._lost = set(lost_ways(id, how, self._nodes))

    def heal(self) -> None:
        with self._changed:
            self._lost = set()
            self._changed.notify_all()

    def close(self) -> None:
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def until_it_passes(self, *ways: tuple[int, int]) -> None:
        """Until nothing is lost on any of these ways."""
        with self._changed:
            while any(way in self._lost for way in ways):
                self._changed.wait()

    def _stand_before(self, id: int, port: int) -> int:
        listener = socket.create_server((LOOPBACK, 0), backlog=256)
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, id, port), daemon=True).start()
        return int(listener.getsockname()[1])

    def _accept(self, listener: socket.socket, id: int, port: int) -> None:
        while True:
            try:
                caller, address = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(caller, int(address[1]), id, port), daemon=True).start()

    def _join(self, caller: socket.socket, from_port: int, id: int, port: int) -> None:
        caller_id = self._owner_of(from_port)
        self.until_it_passes((caller_id, id), (id, caller_id))
        try:
            node = socket.create_connection((LOOPBACK, port), timeout=CONNECT_S)
        except OSError:
            caller.close()
            return
        for side in (caller, node):
            side.settimeout(None)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=self._pass_on, args=(node, caller, (id, caller_id)), daemon=True)
        back.start()
        self._pass_on(caller, node, (caller_id, id))
        back.join()
        caller.close()
        node.close()

    def _pass_on(self, source: socket.socket, target: socket.socket, way: tuple[int, int]) -> None:
        while True:
            try:
                data = source.recv(CHUNK_BYTES)
            except OSError:
                data = b""
            self.until_it_passes(way)
            try:
                if data:
                    target.sendall(data)
                    continue
            except OSError:
                pass
            for side in (source, target):
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
            return

    def _owner_of(self, port: int) -> int:
        """The node whose process has this end of a connection; CLIENTS where it is none's."""
        inode = inode_of(port)
        for id, node in self._nodes.items():
            process = node.process
            if inode is not None and process is not None and has_socket(process.pid, inode):
                return id
        return CLIENTS


def inode_of(port: int) -> str | None:
    """Of the connected socket that has this port of its own."""
    local = f":{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(local) and fields[3] == "01":
            return fields[9]
    return None


def has_socket(pid: int, inode: str) -> bool:
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                if os.readlink(f"{folder}/{name}") == f"socket:[{inode}]":
                    return True
    return False
