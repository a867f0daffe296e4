"""How far each log is known to be committed, kept over restarts (replication-offset-checkpoint).

A replica that comes to lead begins with what it knew, and one that follows shows no less than before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.memory import MemoryLog

if TYPE_CHECKING:
    from tidelog.log.checkpoint_files import CheckpointFiles
    from tidelog.log.log import Log


class HighWatermarks:
    """Of all logs. `points` are the checkpoints, by data folder."""

    def __init__(self, points: dict[str, CheckpointFiles]) -> None:
        self._points = points

    def known(self, log: Log) -> int:
        """What the file has, or is about to have; 0 where that is nothing. The log may end before."""
        return self._points[log.root].replication.offsets.get((log.topic, log.partition), 0)

    def note(self, log: Log) -> None:
        """It goes into the file with the next `save`. Of a log in memory nothing is left that it would be about."""
        if log.high_watermark >= 0 and not isinstance(log, MemoryLog):
            self._points[log.root].replication.put((log.topic, log.partition), log.high_watermark)

    def save(self) -> None:
        """Write down, off the loop, what changed."""
        for points in self._points.values():
            points.replication.save()
