"""What a child process of ours does first: yield to everything else on the machine, and end when its parent ends."""

import os
import signal
import sys

LOWEST_PRIORITY = 19
_PR_SET_PDEATHSIG = 1


def become_child(parent: int) -> None:
    """`parent` is the process that started this one."""
    _die_with(parent)
    os.nice(LOWEST_PRIORITY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the broker ends it when it stops


def _die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends; end now if that was already."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
