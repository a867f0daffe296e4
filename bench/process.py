"""What a broker's process costs: CPU time and memory, its children included, as Linux counts them."""

import os
import time
from collections.abc import Iterator

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds of the process, its children and those of both that have ended, in nanosecond steps.

    It is the scheduler's own count: the sum of /proc/PID/task/*/schedstat and of threads that are gone. Only children
    that ended and were waited for are counted in ticks of 10 ms.
    """
    total = 0.0
    for each in (pid, *descendants(pid)):
        try:
            total += time.clock_gettime(~each << 3 | 2)  # the id that clock_getcpuclockid(3) gives
            ended = _stat(each)[13:15]
        except (OSError, FileNotFoundError):
            continue
        total += sum(map(int, ended)) * TICK_S
    return total


def memory_bytes(pid: int) -> int:
    """Resident memory of the process and its children. Pages that they share count for each of them."""
    return sum(_rollup(each).get("Rss", 0) for each in (pid, *descendants(pid)))


def peak_memory_bytes(pid: int) -> int:
    """The most that the process itself ever had resident."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def descendants(pid: int) -> Iterator[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                children = [int(child) for child in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            yield child
            yield from descendants(child)


def _stat(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def _rollup(pid: int) -> dict[str, int]:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            rows = [line.split() for line in file.readlines()[1:]]
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return {}
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows}
