"""Folders of partitions that get another name, so that their own is free: those of deleted topics, and of no topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.names import deleted_folder, partition_folder, stray_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from tidelog.env import Environment
    from tidelog.log.checkpoint_files import CheckpointFiles
    from tidelog.log.folder_syncs import FolderSyncs
    from tidelog.wire.topic_partition import TopicPartition

    class Remove(Protocol):
        """Have a path removed after so long: `Upkeep.remove`."""

        def __call__(self, path: str, delay_ms: int, *, folder: bool) -> None: ...


class FolderRenames:
    """Of one store. A folder that couldn't be renamed is in the way of the next topic of its name."""

    def __init__(
        self,
        env: Environment,
        points: Mapping[str, CheckpointFiles],
        syncs: FolderSyncs,
        remove: Remove,
        report: Callable[[str], None],
    ) -> None:
        self._disk = env.disk
        self._random = env.random
        self._points = points
        self._syncs = syncs
        self._remove = remove
        self._report = report
        self._in_the_way: set[str] = set()
        self._strays: set[str] = set()  # of these, those that an operator should see before they go

    def is_in_the_way(self, folder: str) -> bool:
        return folder in self._in_the_way

    def put_away(self, root: str, key: TopicPartition, delay_ms: int) -> bool:
        """A deleted topic's: renamed at once, and removed later; whether that could be done."""
        folder = f"{root}/{partition_folder(*key)}"
        if not self._disk.exists(folder):  # only the journal knew of it
            return True
        if folder in self._strays:
            return self.put_aside_or_pass_over(root, key, f"{folder} is of no topic")
        try:
            renamed = self._rename(root, key, deleted_folder(*key, self._random.uuid()))
        except OSError as error:
            self._in_the_way.add(folder)
            self._report(f"putting away {folder} failed: {error}")
            return False
        self._in_the_way.discard(folder)
        self._remove(renamed, delay_ms, folder=True)
        return True

    def put_aside(self, root: str, key: TopicPartition, why: str) -> None:
        """No topic's: an operator can look at it, as with Kafka. Raises OSError."""
        if not self._disk.exists(f"{root}/{partition_folder(*key)}"):  # only the journal knew of it
            self._points[root].drop(key)
            return
        renamed = self._rename(root, key, stray_folder(*key, self._random.uuid()))
        self._report(f"{why}: it is now {renamed}, delete it if you don't need it")

    def put_aside_or_pass_over(self, root: str, key: TopicPartition, why: str) -> bool:
        """As `put_aside`; where that can't be done, it stays and is in the way. Whether it could."""
        folder = f"{root}/{partition_folder(*key)}"
        try:
            self.put_aside(root, key, why)
        except OSError as error:
            self._in_the_way.add(folder)
            self._strays.add(folder)
            self._report(f"{why}, and it can't be renamed: {error}; it is passed over")
            return False
        self._in_the_way.discard(folder)
        self._strays.discard(folder)
        return True

    def _rename(self, root: str, key: TopicPartition, name: str) -> str:
        folder, renamed = f"{root}/{partition_folder(*key)}", f"{root}/{name}"
        self._disk.rename(folder, renamed)
        self._points[root].drop(key)
        self._syncs.renamed(root, folder)
        return renamed
