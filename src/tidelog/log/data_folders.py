"""The data folders of a store: what a start finds in them, which of them were left clean, and where a new log goes."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from posixpath import dirname
from typing import TYPE_CHECKING

from tidelog.log import checkpoints
from tidelog.log.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINT
from tidelog.log.names import DELETE_FOLDER, METADATA_TOPIC, partition_folder
from tidelog.log.partition_folders import PartitionFolders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.env.disk import Disk
    from tidelog.log.checkpoint_files import CheckpointFiles
    from tidelog.log.journal import Journal
    from tidelog.log.renames import Remove
    from tidelog.wire.topic_partition import TopicPartition


class DataFolders:
    """`partitions` are those on disk, or in a journal, that nobody asked for yet. `admitted` are the folders that are
    written to."""

    def __init__(
        self,
        disk: Disk,
        points: Mapping[str, CheckpointFiles],
        journals: Mapping[str, Journal],
        remove: Remove,
        report: Callable[[str], None],
        for_new: Sequence[str] | None = None,
    ) -> None:
        """`for_new`: those that a new log may go to; None: to any."""
        self._disk = disk
        self._points = points
        self._for_new = list(points) if for_new is None else for_new
        self._journals = journals
        self._remove = remove
        self._report = report
        self.partitions = PartitionFolders()
        self._clean: dict[str, bool] = {}
        self._epochs: dict[str, int | None] = {}
        self.admitted: set[str] = set()
        self._counts: Counter[str] = Counter(dict.fromkeys(points, 0))
        self._gone: dict[TopicPartition, str] = {}
        self.missing: set[TopicPartition] = set()
        """After a stop that wasn't clean: partitions of which there were records, and have no folder."""
        self.doubts: dict[str, str] = {}
        """By data folder: what else speaks against that all is there that was."""

    def look(self) -> int | None:
        """Read the checkpoints and list what is there: nothing is written, since a folder may not be what it should be.

        The broker epoch in the marks of a clean stop; None where one of them is missing, or names another.
        """
        for root, points in self._points.items():
            self._disk.make_folders(root)
            points.load()
            epoch = points.clean_epoch()
            self._clean[root] = epoch is not None and not points.lost
            self._epochs[root] = epoch
            # The mark goes before anything is written: whatever it says, a journal beside it is older.
            self._journals[root].load(clean=self._disk.exists(f"{root}/{CLEAN_SHUTDOWN}"))
            self._counts[root] = self.partitions.look(self._disk, root, self._journals[root].keys())
            if points.lost:
                self.doubts[root] = f"the recovery points in {root} are lost"
            if self._journals[root].damaged:
                self.doubts[root] = f"the journal in {root} is damaged"
        self._look_for_gone()
        epochs = set(self._epochs.values())
        return epochs.pop() if len(epochs) == 1 else None

    def epoch_found(self, root: str) -> int:
        """The broker epoch in the mark of a clean stop that a start found there; -1 where there was none."""
        epoch = self._epochs.get(root)
        return -1 if epoch is None else epoch

    def _look_for_gone(self) -> None:
        """Partitions that had records at the last stop and have no folder now: somebody removed it.

        After a crash the checkpoints may still name a deleted topic's: then it is only told.
        """
        for root, points in self._points.items():
            for key, offset in points.recovery.offsets.items():
                if offset > 0 and key not in self.partitions and key[0] != METADATA_TOPIC:
                    folder = f"{root}/{partition_folder(*key)}"
                    if self._clean[root]:
                        self._gone[key] = (
                            f"{folder} is not there, but held records up to offset {offset} at the last stop"
                        )
                    else:
                        self.missing.add(key)
                        self._report(
                            f"{folder} is not there, but {RECOVERY_POINT} has offset {offset} for it: unless its topic "
                            "was deleted right before the crash, somebody removed it, and it begins anew at offset 0"
                        )

    def admit(self, root: str) -> None:
        """The folder is the broker's: from now on it is written to."""
        if root in self.admitted:
            return
        self.admitted.add(root)
        with suppress(PermissionError):  # its parent may be someone else's, who then made it long ago
            self._disk.sync_folder(dirname(root) or "/")
        if self._disk.exists(f"{root}/{CLEAN_SHUTDOWN}"):
            self._journals[root].discard()
            self._disk.remove(f"{root}/{CLEAN_SHUTDOWN}")
        self._journals[root].admitted()
        self._disk.sync_folder(root)  # after a crash the folders of logs may be known to the page cache only
        for name in self._disk.list_folder(root):
            if name.endswith(DELETE_FOLDER):
                self._remove(f"{root}/{name}", 0, folder=True)
        self._points[root].begin([key for key in self.partitions if root in self.partitions.all_of(key)])

    def close_journal(self, root: str) -> None:
        """Nothing is written to its journal any more."""
        self._journals[root].close()

    def mark(self, root: str, broker_epoch: int) -> None:
        """Leave the mark of a clean stop, off the loop. Nothing needs the journal any more: it goes before that."""
        self._journals[root].remove_files()
        checkpoints.write_clean_shutdown(self._disk, f"{root}/{CLEAN_SHUTDOWN}", broker_epoch)

    def is_clean(self, root: str) -> bool:
        return self._clean[root]

    def journal_is_needed(self, root: str) -> bool:
        """Whether its journal knows of logs that weren't opened yet: of some that were moved to another data folder,
        too, though nothing in this one waits to be opened."""
        return bool(self._journals[root].keys())

    @property
    def all_clean(self) -> bool:
        return all(self._clean.values())

    # -- new logs, and those that go

    def emptiest(self) -> str:
        """The one with the fewest logs, of those for new ones."""
        return min(self._for_new, key=lambda root: self._counts[root])

    def placed(self, root: str) -> None:
        """A new log is in this one."""
        self._counts[root] += 1

    def left(self, root: str, key: TopicPartition) -> None:
        """A log is in this one no more."""
        self._counts[root] -= 1
        self._gone.pop(key, None)

    def gone(self, key: TopicPartition) -> str | None:
        """Why a log that isn't on disk can't be a new one; None: it can."""
        return self._gone.get(key)
