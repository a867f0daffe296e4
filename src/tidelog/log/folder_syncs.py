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
        self._syncs: dict[str, bool] = {}
        """Folders that are synced, or about to be; whether names in them changed since it was asked for."""

    def soon(self, root: str) -> None:
        """Make renamed folders durable: one sync for all of this turn of the loop, and of those that another takes."""
        under_way = root in self._syncs
        self._syncs[root] = under_way
        if not under_way:
            self._env.loop.call_soon(self._sync, root)

    def _sync(self, root: str) -> None:
        self._syncs[root] = False
        disk = self._env.disk
        self._env.loop.run_blocking(lambda: disk.sync_folder(root)).on_done(lambda done: self._synced(root, done))
        self._points[root].recovery.save()

    def _synced(self, root: str, done: Promise[None]) -> None:
        if done.error is not None:
            self._report(f"syncing a data folder failed: {done.error}")
        if self._syncs.pop(root):
            self.soon(root)
