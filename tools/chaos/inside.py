"""A run in namespaces of its own, where the kernel lets us: networks, mounts and processes that end with it.

However a run ends, nothing of it stays: its processes are killed with the first of them, its mounts and bridges go with
their namespaces. As root, or as an ordinary user where those may have namespaces.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

INSIDE = "TIDELOG_CHAOS_INSIDE"
KINDS = ["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
AS_ROOT = ["--user", "--map-root-user"]
TRIED_S = 20


def is_inside() -> bool:
    return INSIDE in os.environ


def way_inside() -> list[str] | None:
    """How to get there; None where there is no way."""
    if any(shutil.which(command) is None for command in ("ip", "unshare", "nsenter", "mount")):
        return None
    tried = "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip netns add tried && ip link add tried type bridge"
    for privilege in ([], AS_ROOT):
        command = ["unshare", *privilege, *KINDS]
        done = subprocess.run([*command, "sh", "-c", tried], capture_output=True, timeout=TRIED_S, check=False)
        if not done.returncode:
            return command
    return None


def go_inside(way: Sequence[str], arguments: Sequence[str]) -> None:
    """Go on there, as the same command. Doesn't return."""
    environment = {**os.environ, INSIDE: "1"}
    command = [*way, sys.executable, "-m", "tools.chaos", *arguments]
    sys.stdout.flush()
    os.execvpe(command[0], command, environment)


def prepare() -> None:
    """Names of network namespaces stand in /run: in one that nobody else sees."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
