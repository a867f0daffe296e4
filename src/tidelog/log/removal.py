"""Removing deleted files and folders when their time has come, off the loop, a bounded number at a time."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.env import Environment
    from tidelog.env.disk import Disk
    from tidelog.env.loop import Timer
    from tidelog.env.promise import Promise

REMOVALS_TOGETHER = 256


class Removals:
    """What waits to be removed, the next one first. One thread is at it at a time: syncs must find others."""

    def __init__(self, env: Environment, report: Callable[[str], None]) -> None:
        self._env = env
        self._report = report
        self._waiting: list[tuple[int, int, str, bool]] = []  # when, in which order, what, whether it is a folder
        self._added = 0
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._busy = False
        self._stopped = False

    def add(self, path: str, delay_ms: int, *, folder: bool = False) -> None:
        """Remove the file or folder after a while."""
        self._added += 1
        heappush(self._waiting, (self._now_ms() + delay_ms, self._added, path, folder))
        self._wait()

    def stop(self) -> None:
        """Remove no more; what is left goes with the next start."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _now_ms(self) -> int:
        """By a clock that is never set back."""
        return int(self._env.clock.monotonic() * 1000)

    def _wait(self) -> None:
        """For the next one that is due."""
        if self._busy or self._stopped or not self._waiting:
            return
        due_ms = self._waiting[0][0]
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._env.loop.call_later(max(0, due_ms - self._now_ms()) / 1000, self._remove_due)

    def _remove_due(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        due: list[tuple[str, bool]] = []
        while self._waiting and self._waiting[0][0] <= now_ms and len(due) < REMOVALS_TOGETHER:
            _, _, path, folder = heappop(self._waiting)
            due.append((path, folder))
        if not due:
            self._wait()
            return
        self._busy = True
        disk = self._env.disk
        self._env.loop.run_blocking(lambda: _remove(disk, due)).on_done(self._removed)

    def _removed(self, done: Promise[OSError | None]) -> None:
        self._busy = False
        error = done.error or done.result()
        if error is not None:
            self._report(f"removing deleted files failed: {error}; they are tried again at the next start")
        self._wait()


def _remove(disk: Disk, due: list[tuple[str, bool]]) -> OSError | None:
    """Remove each that is there; the first error, if any could not be removed."""
    failed: OSError | None = None
    for path, folder in due:
        try:
            if disk.exists(path):
                (disk.remove_tree if folder else disk.remove)(path)
        except OSError as error:
            failed = failed or error
    return failed
