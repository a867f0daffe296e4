"""Names of partitions' folders that were a deleted topic's a moment ago: when a new log may take one.

Not while files of the older log are still flushed or synced: they are known by name, so that would write into the new
one, or be told of a failure in its place. Nor while a power loss could bring the older folder back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.env import Environment
    from tidelog.log.checkpoint_files import CheckpointFiles
    from tidelog.log.folder_syncs import FolderSyncs
    from tidelog.log.log import Log

LOOK_S = 0.01
USED_MAX = 1024
"""Names of deleted logs in use, beyond which those are looked for that aren't any more."""


class Commit(Protocol):
    def syncs(self, log: Log) -> bool: ...


class Upkeep(Protocol):
    def saving(self, folder: str) -> bool: ...


class FolderNames:
    """Of one store."""

    def __init__(
        self,
        env: Environment,
        points: Mapping[str, CheckpointFiles],
        syncs: FolderSyncs,
        commit: Commit,
        upkeep: Upkeep,
    ) -> None:
        self._disk = env.disk
        self._loop = env.loop
        self._points = points
        self._syncs = syncs
        self._commit = commit
        self._upkeep = upkeep
        self._used: dict[str, Log] = {}  # folders of deleted logs that may still be synced

    def deleted(self, log: Log) -> None:
        """The log is no more; whoever syncs it now still does."""
        if self._commit.syncs(log):
            if len(self._used) >= USED_MAX:
                self._used = {folder: used for folder, used in self._used.items() if self._commit.syncs(used)}
            self._used[log.folder] = log

    def claim(self, log: Log) -> None:
        """The folder of the log is about to be made. Raises KafkaError where that has to wait, and OSError."""
        if self._is_used(log.folder):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.folder} was a deleted topic's a moment ago: try again"
            )
        syncs = self._syncs
        if syncs.is_under_way(log.root, log.folder) or syncs.has_failed(log.folder):
            syncs.sync_now(log.root, log.folder)
        self._points[log.root].claim((log.topic, log.partition))

    def free(self, log: Log) -> Promise[None] | None:
        """What the log has to wait for before it takes its name."""
        if not self._is_taken(log):
            if self._syncs.has_failed(log.folder):
                return Promise[None].failed(OSError(f"{log.root} couldn't be synced"))  # the write tries it once more
            points, key = self._points[log.root], (log.topic, log.partition)
            return points.claim_soon(key) if points.hold(key) and not self._disk.exists(log.folder) else None
        freed: Promise[None] = Promise()

        def look() -> None:
            if self._is_taken(log):
                self._loop.call_later(LOOK_S, look)
                return
            later = self.free(log)
            if later is None:
                freed.resolve(None)
            else:
                later.on_done(lambda done: freed.resolve(None) if done.error is None else freed.fail(done.error))

        self._loop.call_later(LOOK_S, look)
        return freed

    def _is_taken(self, log: Log) -> bool:
        """Whether an older log of its name is still flushed, or would still come back after a power loss."""
        return self._is_used(log.folder) or self._syncs.is_under_way(log.root, log.folder)

    def _is_used(self, folder: str) -> bool:
        """Whether files of a deleted log are still flushed or synced under this name."""
        deleted = self._used.get(folder)
        if deleted is not None and not self._commit.syncs(deleted):
            del self._used[folder]
            deleted = None
        return deleted is not None or self._upkeep.saving(folder)
