"""The entry of the child process that compacts a log: `python -m tidelog.log.compaction.child`.

It shares nothing with the broker but the disk, yields to everything else on the machine, and ends when the broker ends.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from tidelog.env.child import become_child
from tidelog.log.compaction import clean
from tidelog.log.compaction.task import Task, encode_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.env.disk import Disk

PAUSE_S_MIN = 0.01


def steps(disk: Disk, task: bytes, took: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """What is told, line by line."""
    for report in clean.run(disk, Task.decode(task), took):
        yield encode_report(report)


class Throttle:
    """Keeps reading and writing within a rate: called with the bytes of each, it sleeps when they were too many."""

    def __init__(self, bytes_per_s: float) -> None:
        self._rate = bytes_per_s
        self._since = time.monotonic()
        self._bytes = 0

    def __call__(self, count: int) -> None:
        self._bytes += count
        ahead_s = self._bytes / self._rate - (time.monotonic() - self._since)
        if ahead_s >= PAUSE_S_MIN:
            time.sleep(ahead_s)
            self._since, self._bytes = time.monotonic(), 0


def main() -> None:
    become_child(int(sys.argv[1]))
    from tidelog.env.real_disk import RealDisk

    task = sys.stdin.buffer.read()
    throttle = Throttle(max(1.0, Task.decode(task).bytes_per_s))
    for line in steps(RealDisk(), task, throttle):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
