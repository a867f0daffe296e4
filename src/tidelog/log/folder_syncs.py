"""Names that changed in a data folder are made durable: one sync for all of a turn of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.env import Environment
    from tidelog.env.promise import Promise
    from tidelog.log.checkpoint_files import CheckpointFiles


class FolderSyncs:
    """Syncs of data folders off the loop, one of each at a time; with the recovery points of logs that went."""

    def __init__(self, env: Environment, points: Mapping[str, CheckpointFiles], report: Callable[[str], None]) -> None:
        self._env = env
        self._points = points
        self._report = report
        self._due: dict[str, set[str]] = {}  # by data folder: what was renamed since the last sync of it began
        self._under_way: dict[str, set[str]] = {}
        self._failed: set[str] = set()

    def renamed(self, root: str, folder: str) -> None:
        """Make it durable soon: one sync for all of this turn of the loop, and of those that another takes."""
        due = self._due.get(root)
        if due is None:
            due = self._due[root] = set()
            if root not in self._under_way:
                self._env.loop.call_soon(self._sync, root)
        due.add(folder)

    def is_under_way(self, root: str, folder: str) -> bool:
        """Whether the folder of this name was renamed, and that isn't durable but soon will be."""
        return folder in self._due.get(root, ()) or folder in self._under_way.get(root, ())

    def has_failed(self, folder: str) -> bool:
        """Whether a power loss may bring back what had this name."""
        return folder in self._failed

    def sync_now(self, root: str, folder: str) -> None:
        """Make the rename of one folder durable, here and now. Raises OSError."""
        self._env.disk.sync_folder(root)
        self._failed.discard(folder)

    def _sync(self, root: str) -> None:
        self._under_way[root] = self._due.pop(root)
        disk = self._env.disk
        self._env.loop.run_blocking(lambda: disk.sync_folder(root)).on_done(lambda done: self._synced(root, done))
        self._points[root].recovery.save()

    def _synced(self, root: str, done: Promise[None]) -> None:
        renamed = self._under_way.pop(root)
        if done.error is None:
            self._failed -= renamed
        else:
            self._failed |= renamed
            self._report(f"syncing a data folder failed: {done.error}")
        if root in self._due:
            self._env.loop.call_soon(self._sync, root)
