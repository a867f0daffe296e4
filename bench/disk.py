"""What was written to the disk: as the broker gave it, as its pages were written, and as the device counted it.

None of the three tells all. What the process gave to write(2) has no blocks of 4 KB and nothing of the file system in
it. The pages that it made dirty have whole blocks, and are its own whoever else writes; they lack what the file system
writes for itself (its journal, inodes). The device has everything, and what others write, too: what it took on a
broker that did nothing, right before, is taken off.
"""

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

BASELINE_S = 0.5
SECTOR_BYTES = 512
SECTORS_WRITTEN = 6
"""Its place in /sys/dev/block/*/stat, as in /proc/diskstats."""


@dataclass(frozen=True, slots=True)
class Written:
    given: float
    pages: float
    device: float
    """NaN where the file system lies on no block device of its own."""


class DiskMeter:
    """Counts what a broker writes from here to `end`. Both begin with a sync of everything, so that what is left from
    before isn't counted, and what the broker left to the page cache is."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._folder = folder
        os.sync()
        before, began = _device_bytes(folder), time.monotonic()
        time.sleep(BASELINE_S)
        self._began = time.monotonic()
        self._start = self._now()
        self._others_per_s = (self._start.device - before) / (self._began - began)

    def end(self) -> Written:
        os.sync()
        seconds, now = time.monotonic() - self._began, self._now()
        device = now.device - self._start.device - self._others_per_s * seconds
        return Written(now.given - self._start.given, now.pages - self._start.pages, device)

    def _now(self) -> Written:
        with open(f"/proc/{self._pid}/io") as file:
            counts = {name: int(value) for name, value in (line.split(": ") for line in file)}
        return Written(counts["wchar"], counts["write_bytes"], _device_bytes(self._folder))


def _device_bytes(folder: Path) -> float:
    device = folder.stat().st_dev
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    if not path.exists():
        return math.nan
    return float(path.read_text().split()[SECTORS_WRITTEN]) * SECTOR_BYTES


def log_bytes(folder: Path, topic: str) -> int:
    """The bytes of a topic's record batches, in all of its partitions."""
    return sum(path.stat().st_size for path in folder.glob(f"{topic}-*/*.log"))
