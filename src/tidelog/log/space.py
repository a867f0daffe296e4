"""How fast the disk fills up: free bytes of each data folder, looked at now and then, for a day.

What counts is what is left, whoever takes it. A rate of less than some minutes is no rate.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.env.clock import Clock
    from tidelog.env.disk import Disk

DAY_S = 86_400.0
APART_S = 120.0
"""Looks that are nearer to each other aren't kept: a day is 720 of them."""
KNOWN_AFTER_S = 600.0


class FreeSpace:
    """Of the data folders of one store."""

    def __init__(self, disk: Disk, clock: Clock, folders: list[str]) -> None:
        self._disk = disk
        self._clock = clock
        self._looks: dict[str, deque[tuple[float, int]]] = {folder: deque() for folder in folders}

    def look(self) -> None:
        """Note what is free now."""
        now = self._clock.monotonic()
        for folder, looks in self._looks.items():
            while looks and now - looks[0][0] > DAY_S:
                looks.popleft()
            if not looks or now - looks[-1][0] >= APART_S:
                try:
                    looks.append((now, self._disk.free_bytes(folder)))
                except OSError:
                    continue  # whoever asks for the folder is told

    def taken_per_day(self, folder: str) -> int | None:
        """Bytes that went in a day, at the rate of the time that is known; negative where some came back. None: the
        time is too short to tell."""
        looks = self._looks.get(folder)
        if not looks or looks[-1][0] - looks[0][0] < KNOWN_AFTER_S:
            return None
        (began, first), (ended, last) = looks[0], looks[-1]
        return int((first - last) / (ended - began) * DAY_S)
