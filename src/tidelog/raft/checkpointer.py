"""When the metadata is written as a checkpoint, and what it then makes superfluous: older checkpoints, the log below.

The log alone would grow for ever, and loading it would take as long. A checkpoint is written off the loop from an
immutable state, so decisions go on meanwhile.
"""

import logging
from bisect import insort
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidelog.env import Environment
from tidelog.env.loop import Timer
from tidelog.env.promise import Promise
from tidelog.raft.metadata_log import MetadataLog
from tidelog.raft.settings import RaftSettings
from tidelog.raft.snapshot import (
    SnapshotId,
    delete_snapshots,
    encode_snapshot,
    list_snapshots,
    remove_leftovers,
    snapshot_timestamp,
    write_snapshot,
)
from tidelog.raft.voters import VoterSet
from tidelog.wire.errors import KafkaError

_logger = logging.getLogger(__name__)


FIRST_AFTER_MS = 60_000
"""A checkpoint that is overdue at a start waits until clients that came back have had their turn."""


class SnapshotSource(NamedTuple):
    """A committed state to be written as a checkpoint. `values` is drawn off the loop: it must not change."""

    id: SnapshotId
    timestamp_ms: int
    values: Iterable[bytes]


class Checkpointer:
    """The checkpoints of one replica. `source` gives the state when the time has come; `voters` who they were
    below an offset, with the kraft.version."""

    def __init__(
        self,
        env: Environment,
        folder: str,
        log: MetadataLog,
        settings: RaftSettings,
        source: Callable[[], SnapshotSource | None],
        voters: Callable[[int], tuple[int, VoterSet | None]],
    ) -> None:
        remove_leftovers(env.disk, folder)
        self.snapshots = list_snapshots(env.disk, folder)
        """Those there are, oldest first."""
        self._env = env
        self._folder = folder
        self._log = log
        self._settings = settings
        self._source = source
        self._voters = voters
        self._timer: Timer | None = None
        self._under_way = False
        self._stopped = False
        self._bytes = 0

    def begin(self, log_bytes: int, age_ms: int) -> None:
        """The log is recovered: so many bytes are behind the newest checkpoint, which is so old.

        What earlier lives wrote counts: a broker that is restarted again and again would never write one else.
        """
        self._bytes = log_bytes
        interval_ms = self._settings.snapshot_interval_ms
        left_ms = min(max(interval_ms - age_ms, FIRST_AFTER_MS), interval_ms)
        self._restart_timer(left_ms)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def installed(self, snapshot: SnapshotId) -> None:
        """A checkpoint was fetched from the leader; the log begins behind it."""
        self._bytes = 0
        self._add(snapshot)
        self._restart_timer()

    def _add(self, snapshot: SnapshotId) -> None:
        if snapshot not in self.snapshots:
            insort(self.snapshots, snapshot)

    def wrote(self, count: int) -> None:
        """So many bytes were appended to the log."""
        self._bytes += count

    def take_if_due(self) -> None:
        if self._bytes >= self._settings.snapshot_bytes:
            self.take()

    def take(self) -> Promise[None]:
        """Write the committed state as a checkpoint, off the loop; then let go of what it makes superfluous."""
        source = None if self._under_way or self._stopped else self._source()
        if source is None or (self.snapshots and source.id <= self.snapshots[-1]):
            return Promise[None].resolved(None)
        self._under_way = True
        self._bytes = 0
        disk, folder, now_ms = self._env.disk, self._folder, self._env.clock.now_ms()
        kraft_version, voters = self._voters(source.id.offset)

        def write() -> None:
            batches = encode_snapshot(
                source.values,
                epoch=source.id.epoch,
                log_timestamp_ms=source.timestamp_ms,
                now_ms=now_ms,
                kraft_version=kraft_version,
                voters=voters,
            )
            write_snapshot(disk, folder, source.id.file_name, batches)

        written = self._env.loop.run_blocking(write)
        written.on_done(lambda promise: self._written(source.id, promise.error))
        return written

    def _written(self, snapshot: SnapshotId, error: BaseException | None) -> None:
        self._under_way = False
        if error is not None:  # the log still holds everything: the next one may fare better
            _logger.error("the checkpoint %s could not be written: %s", snapshot.file_name, error)
            return
        self._add(snapshot)
        if not self._stopped:
            self._restart_timer()
            try:
                self._clean()
            except (OSError, KafkaError) as failure:  # what stays is too much, not too little
                _logger.error("old checkpoints in %s could not be removed: %s", self._folder, failure)

    def _clean(self) -> None:
        """Delete the oldest checkpoints, and the log below the next, while there is more than retention wants."""
        disk, folder, now_ms = self._env.disk, self._folder, self._env.clock.now_ms()
        sizes = {snapshot: disk.size(f"{folder}/{snapshot.file_name}") for snapshot in self.snapshots}
        total = sum(sizes.values()) + self._log.size_bytes()
        gone: list[SnapshotId] = []
        while len(self.snapshots) > 1:
            oldest, following = self.snapshots[:2]
            age_ms = now_ms - snapshot_timestamp(disk, f"{folder}/{oldest.file_name}")
            if total <= self._settings.retention_bytes and age_ms <= self._settings.retention_ms:
                break
            gone.append(self.snapshots.pop(0))
            before = self._log.size_bytes()
            self._log.delete_before(following)
            total -= sizes[oldest] + before - self._log.size_bytes()
        delete_snapshots(disk, folder, gone)

    def _restart_timer(self, delay_ms: int | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        interval_ms = self._settings.snapshot_interval_ms
        self._timer = None
        if interval_ms > 0 and not self._stopped:
            delay_ms = interval_ms if delay_ms is None else delay_ms
            self._timer = self._env.loop.call_later(delay_ms / 1000, self._interval_over)

    def _interval_over(self) -> None:
        self._restart_timer()
        self.take()
