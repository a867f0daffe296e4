"""Data folders that can be left without room: on file systems of a few hundred megabytes, or by a file that says so."""

import os
import subprocess
from pathlib import Path
from typing import Protocol

from tests.nodes import Node
from tools.chaos.crowded import FULL

DISK_BYTES = 512 << 20
BALLAST_BYTES = 1 << 20


class Disks(Protocol):
    what: str
    """How a disk is filled, for the report."""

    def place(self, node: Node) -> None:
        """Give it its data folder, before it is formatted."""
        ...

    def fill(self, node: Node) -> None: ...

    def clear(self, node: Node) -> None: ...


class Mounts:
    """A tmpfs for each node. What fills it lies beside the data."""

    what = f"each data folder on a tmpfs of {DISK_BYTES >> 20} MiB, filled up by a file"

    def place(self, node: Node) -> None:
        node.folder.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(node.folder)], check=True)
        node.folder /= "data"

    def fill(self, node: Node) -> None:
        with open(_ballast(node), "wb", buffering=0) as file:
            for size in (BALLAST_BYTES, 4096, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    continue

    def clear(self, node: Node) -> None:
        _ballast(node).unlink(missing_ok=True)


class Quotas:
    """Where nothing can be mounted: the node is started as one whose writes find no room while a file is there."""

    what = "a file that makes the node's writes find no room (nothing can be mounted here)"

    def place(self, node: Node) -> None:
        node.folder.mkdir(parents=True)
        node.folder /= "data"
        node.prefix = [*node.prefix, "env", f"{FULL}={_ballast(node)}"]
        node.module = "tools.chaos.crowded"

    def fill(self, node: Node) -> None:
        _ballast(node).touch()

    def clear(self, node: Node) -> None:
        _ballast(node).unlink(missing_ok=True)


def _ballast(node: Node) -> Path:
    return node.folder.parent / "ballast"


def free_bytes(node: Node) -> int:
    found = os.statvfs(node.folder)
    return found.f_bavail * found.f_frsize
