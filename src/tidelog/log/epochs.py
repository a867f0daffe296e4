"""The leader epochs of a log: which leader wrote from which offset on. Answers where two replicas part ways (KIP-101).

Entries rise in both epoch and start offset. They are kept in memory and saved lazily: recovery finds every epoch at or
above the recovery point in the batches themselves, so a new entry must be durable (`checkpoints.write_epochs`)
before the recovery point passes it.
"""

from __future__ import annotations

from bisect import bisect_right

from tidelog.env.disk import Disk
from tidelog.log import checkpoints

UNDEFINED = (-1, -1)
"""The answer for an epoch that nothing is known of: no epoch, no offset."""


class LeaderEpochs:
    """(epoch, start offset) of every leader whose records are in the log."""

    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.dirty = False
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.dirty = False

    @classmethod
    def load(cls, disk: Disk, path: str) -> LeaderEpochs:
        """From the log's leader-epoch-checkpoint; empty where there is none. Raises CheckpointError."""
        return cls(checkpoints.read_epochs(disk, path))

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The newest epoch; -1 where there is none."""
        return self._epochs[-1] if self._epochs else -1

    @property
    def earliest(self) -> tuple[int, int] | None:
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """A leader of `epoch` writes from `start_offset` on. What contradicts it (newer epoch, later start) goes."""
        assert epoch >= 0, f"leader epoch {epoch}"
        assert start_offset >= 0, f"start offset {start_offset}"
        epochs, starts = self._epochs, self._starts
        if epochs and epoch == epochs[-1] and start_offset >= starts[-1]:
            return
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        self.dirty = True

    def end_offset_for(self, requested: int, log_end: int) -> tuple[int, int]:
        """(epoch, end offset) of the last epoch up to `requested`, as OffsetForLeaderEpoch answers it.

        The current epoch ends at `log_end`; one newer than all known is UNDEFINED; one older than all known ends where
        the first known begins, under the requested number, since what it wrote is gone.
        """
        epochs = self._epochs
        if requested == -1 or not epochs:
            return UNDEFINED
        if requested == epochs[-1]:
            return requested, log_end
        above = bisect_right(epochs, requested)
        if above == len(epochs):
            return UNDEFINED
        if above == 0:
            return requested, self._starts[0]
        return epochs[above - 1], self._starts[above]

    def epoch_for(self, offset: int) -> int:
        """The epoch of the leader that wrote `offset`; -1 where it is older than all known."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: epochs that start there or later wrote nothing that is left."""
        if end_offset < 0:
            return
        starts = self._starts
        while starts and starts[-1] >= end_offset:
            starts.pop()
            self._epochs.pop()
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: older epochs go, the one that wrote it begins there."""
        index = bisect_right(self._starts, start_offset)
        if not index or (index == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: index - 1], self._starts[: index - 1]
        self._starts[0] = start_offset
        self.dirty = True

    def begin_save(self) -> list[tuple[int, int]] | None:
        """What is to be saved; None where nothing changed since."""
        dirty, self.dirty = self.dirty, False
        return self.entries() if dirty else None

    def save_again(self) -> None:
        """What was to be saved isn't, or another is in its place."""
        self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
