"""The machine: what it is, and making it comparable with itself before anything is measured."""

import mmap
import os
import platform
import time
from pathlib import Path

TOUCHED_BYTES_MAX = 6 << 30


def describe(folder: Path) -> dict[str, str]:
    """For the results: processor, cores, kernel, file system."""
    return {
        "processor": _first(Path("/proc/cpuinfo"), "model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _first(Path("/proc/meminfo"), "MemTotal"),
        "kernel": platform.release(),
        "file_system": file_system(folder),
        "python": platform.python_version(),
    }


def touch_memory() -> None:
    """Touch free memory once. A virtual machine may get its memory from the host only then, at five times the price of
    writing to it, and whoever writes to the page cache first would be charged for that."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemFree"))
    count = min(TOUCHED_BYTES_MAX, free // 2) // mmap.PAGESIZE * mmap.PAGESIZE
    if count:
        mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


class OtherWork:
    """How busy others kept the machine: every figure suffers from it, and a p99 most."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy_s = _busy_s()
        self._own_s = _own_s()

    def share(self, lost_s: float = 0.0) -> float:
        """The part of all cores' time that went neither to the benchmark nor to its brokers, which must have ended.

        `lost_s` are seconds of processes of ours that nobody waited for.
        """
        seconds = (time.monotonic() - self._began) * len(os.sched_getaffinity(0))
        return max(0.0, (_busy_s() - self._busy_s) - (_own_s() - self._own_s) - lost_s) / seconds


def _busy_s() -> float:
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`."""
    best, kind = "", "unknown"
    with open("/proc/self/mounts") as file:
        for line in file:
            _, mounted_at, its_kind, *_ = line.split()
            if str(folder.resolve()).startswith(mounted_at) and len(mounted_at) > len(best):
                best, kind = mounted_at, its_kind
    return kind


def disk_sync_us(folder: Path, rounds: int = 300) -> tuple[float, float]:
    """p50 and p99, in microseconds, of a 1 KB append and its fdatasync: what every fsync figure rests on."""
    times: list[float] = []
    path = folder / "sync"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for _ in range(rounds):
            began = time.perf_counter()
            os.write(file, bytes(1000))
            os.fdatasync(file)
            times.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(file)
        path.unlink()
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.99)]


def _first(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"
