"""Work, counted: what a test bounds in place of wall time, which depends on how busy the machine is.

with calls() as spent:
    ...
assert spent.count < 1000
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


class Spent:
    """Functions that were called on this thread, Python's own included."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, frame: FrameType, event: str, arg: object) -> None:
        self.count += event in ("call", "c_call")


@contextmanager
def calls() -> Iterator[Spent]:
    """Count the calls of functions."""
    spent, before = Spent(), sys.getprofile()
    sys.setprofile(spent.note)
    try:
        yield spent
    finally:
        sys.setprofile(before)


def cpu_s(pid: int) -> float:
    """The CPU time that a process has had so far, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
