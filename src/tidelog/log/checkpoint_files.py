"""The checkpoint files of a data folder: how far each log is flushed, where it starts, how far it is replicated.

Kept in memory for all logs of the folder, the ones that nobody opened included, and written down as a whole: off the
loop while the broker runs, one write of a file at a time.

Where an offset must fall at once (a log is cut below its recovery point, a new topic takes a deleted one's name), the
write can't wait for another that may be under way: it goes to a file of its own, `FALLEN`, which a start looks at too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.setting import LONG_MAX
from tidelog.env.promise import Promise, gather
from tidelog.env.slices import settled
from tidelog.log import checkpoints
from tidelog.log.checkpoints import CLEAN_SHUTDOWN, CLEANER, LOG_START, RECOVERY_POINT, REPLICATION, CheckpointError
from tidelog.log.names import partition_folder
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.env import Environment
    from tidelog.env.slices import Steps


UNKNOWN = -1
"""The recovery point of a log that was found when the file with the recovery points was lost."""
MEMORY_END = "tidelog-memory-end-checkpoint"
"""Where logs that are kept in memory go on after a restart."""
FALLEN = "tidelog-fallen-checkpoint"
"""Offsets above which recovery points and log starts of the other files don't count. Gone when those were written."""

BEGUN = LONG_MAX
"""In that file: nothing fell, but the log was begun here, and no recovery point of it may be saved yet."""


class OffsetsFile:
    """One checkpoint file: offsets of all logs in a folder."""

    def __init__(self, env: Environment, path: str, report: Callable[[str], None]) -> None:
        self._env = env
        self._path = path
        self._report = report
        self._changed = False
        self._writing = False
        self._waiting: list[Promise[None]] = []
        self._doubtful: Mapping[TopicPartition, int] = {}  # what was written last, unless that failed
        self.offsets: dict[TopicPartition, int] = {}
        self.durable: Mapping[TopicPartition, int] = {}
        """What stands in the file for sure."""
        self.missing = self.broken = False

    def load(self) -> None:
        """`broken` where it can't be read: then nothing is trusted."""
        self.missing = not self._env.disk.exists(self._path)
        try:
            self.offsets = checkpoints.read_offsets(self._env.disk, self._path)
            self.durable = dict(self.offsets)
        except CheckpointError as error:
            self.broken = True
            self._report(f"{error}; going on without it")

    def put(self, key: TopicPartition, offset: int) -> None:
        if self.offsets.get(key) != offset:
            self.offsets[key] = offset
            self._changed = True

    def drop(self, key: TopicPartition) -> None:
        if self.offsets.pop(key, None) is not None:
            self._changed = True

    def clear(self) -> None:
        for key in list(self.offsets):
            self.drop(key)

    def save(self) -> Promise[None]:
        """Write it down off the loop; resolved when what it holds now is durable."""
        promise: Promise[None] = Promise()
        if not self._changed and not self._writing:
            promise.resolve(None)
            return promise
        self._waiting.append(promise)
        if not self._writing:
            self._write()
        return promise

    def save_again(self) -> Promise[None]:
        """As `save`, also where it holds what was written last: somebody may have removed it."""
        self._changed = True
        return self.save()

    def save_now(self) -> None:
        """Write it down at once; no other write of it may be under way."""
        assert not self._writing, f"{self._path} is being written"
        checkpoints.write_offsets(self._env.disk, self._path, self.offsets)
        self._changed = False
        self.durable, self._doubtful = dict(self.offsets), {}

    @property
    def idle(self) -> bool:
        return not self._writing

    def _write(self) -> None:
        self._writing = True
        self._changed = False
        waiting, self._waiting = self._waiting, []
        offsets = self._doubtful = dict(self.offsets)
        disk, path = self._env.disk, self._path
        done = self._env.loop.run_blocking(lambda: checkpoints.write_offsets(disk, path, offsets))
        done.on_done(lambda promise: self._written(waiting, offsets, promise))

    def _written(
        self, waiting: list[Promise[None]], offsets: dict[TopicPartition, int], promise: Promise[None]
    ) -> None:
        self._writing = False
        if promise.error is not None:
            self._changed = True
            self._report(f"writing {self._path} failed: {promise.error}")
        else:
            self.durable, self._doubtful = offsets, {}
        for waiter in waiting:
            if promise.error is not None:
                waiter.fail(promise.error)
            else:
                waiter.resolve(None)
        if self._waiting and not self._writing:
            self._write()

    def may_hold(self, key: TopicPartition) -> bool:
        """Whether an offset of this log may stand in the file, or come to: one that was dropped included."""
        return key in self.offsets or key in self.durable or key in self._doubtful


class CheckpointFiles:
    """The checkpoint files of one data folder."""

    def __init__(self, env: Environment, root: str, report: Callable[[str], None]) -> None:
        self.root = root
        self._report = report
        self.recovery = OffsetsFile(env, f"{root}/{RECOVERY_POINT}", report)
        self.starts = OffsetsFile(env, f"{root}/{LOG_START}", report)
        self.replication = OffsetsFile(env, f"{root}/{REPLICATION}", report)
        self.memory = OffsetsFile(env, f"{root}/{MEMORY_END}", report)
        self.cleaner = OffsetsFile(env, f"{root}/{CLEANER}", report)
        self._fallen = OffsetsFile(env, f"{root}/{FALLEN}", report)
        self._falls: dict[TopicPartition, object] = {}  # tells a fall from an earlier one to the same offset
        self._begun: dict[TopicPartition, None] = {}  # logs that were begun since `know` was last asked for
        self._disk = env.disk

    @property
    def files(self) -> tuple[OffsetsFile, ...]:
        return self.recovery, self.starts, self.replication, self.memory, self.cleaner

    @property
    def _falling(self) -> tuple[OffsetsFile, ...]:
        """Those in which an offset must not outlive the records that it is about."""
        return self.recovery, self.starts, self.cleaner

    def load(self) -> None:
        for file in (*self.files, self._fallen):
            file.load()
        if self._fallen.broken:  # offsets may count that are a deleted topic's: a start among them would hide records
            self.starts.clear()
            self.cleaner.clear()
        for key, fallen in self._fallen.offsets.items():
            for file in self._falling:
                if file.offsets.get(key, 0) > fallen:
                    file.put(key, fallen)
            if self.recovery.offsets.get(key, UNKNOWN) == UNKNOWN:
                # The log is one that was begun here (`know`, `claim`), or was read whole (`know_whole`).
                self.recovery.put(key, 0 if fallen == BEGUN else fallen)

    def clean_epoch(self) -> int | None:
        """The broker epoch in the mark of a clean stop; None where the last one wasn't."""
        try:
            return checkpoints.read_clean_shutdown(self._disk, f"{self.root}/{CLEAN_SHUTDOWN}")
        except CheckpointError as error:
            self._report(f"{error}; reading the logs as after a crash")
            return None

    @property
    def lost(self) -> bool:
        """Whether the recovery points can't be trusted, or aren't there: a folder in which there are logs has some."""
        return self.recovery.missing or self.recovery.broken or self._fallen.broken

    def recovery_point(self, key: TopicPartition) -> int:
        """Of a log that was found. Where nothing is known of it, that is lost too: the folder of the log came from
        elsewhere, and `know` sees to it that this is known of those that were begun here."""
        return self.recovery.offsets.get(key, UNKNOWN)

    def was_flushed(self, key: TopicPartition) -> bool:
        """Whether something in the folder of a log that was found may have been made durable once."""
        return self.lost or self.recovery.durable.get(key, 0) != 0

    def _has_segments(self, topic: str, partition: int) -> bool:
        folder = f"{self.root}/{partition_folder(topic, partition)}"
        return self._disk.exists(folder) and any(name.endswith(".log") for name in self._disk.list_folder(folder))

    def begin(self, found: list[TopicPartition]) -> None:
        """These logs are in the folder. Recovery points that were lost stay so until each log has a new one.

        Before the first log the file is made: one that isn't there is lost from then on.
        """
        if self.lost and found:
            if any(self._has_segments(*key) for key in found):  # not so of a metadata log that was just formatted
                self._report(f"the recovery points in {self.root} are lost: all logs in it are read")
            for key in found:
                self.recovery.put(key, UNKNOWN)
        try:
            if self._fallen.broken:
                for file in self._falling:
                    file.save_now()
                self._disk.remove(f"{self.root}/{FALLEN}")
                self._disk.sync_folder(self.root)
            elif self._fallen.offsets:
                for file in self._falling:
                    file.save_now()
                self.settled()
            elif self.recovery.missing and not found:
                self.recovery.save_now()
        except OSError as error:  # after a crash all is read then; what fell counts again
            self._report(f"{self.root}: writing a checkpoint failed: {error}")

    def fall(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Durably and at once: recovery point, start and compacted part of these logs end no higher than there."""
        for key, offset in offsets.items():
            self._fallen.put(key, offset)
            self._falls[key] = object()
        self._fallen.save_now()
        for key, offset in offsets.items():
            for file in self._falling:
                if file.offsets.get(key, 0) > offset:
                    file.put(key, offset)
        self.settle()

    def begun(self, key: TopicPartition) -> None:
        """A new log was begun: its recovery point is 0, and comes into the file with those of others."""
        if self.recovery.offsets.get(key, UNKNOWN) == UNKNOWN:
            self.recovery.put(key, 0)
            self._begun[key] = None

    def know(self, key: TopicPartition) -> OSError | None:
        """A log is about to get a further segment, or a start: say, durably and at once, that it was begun here.

        A power loss may then tear any of its segments, and the log is cut. In one that came from elsewhere, with
        nothing in the file, that is damage. It is said of all others with it: where one comes many come, and each
        would have to wait for the disk.
        """
        if not self._is_new(key):
            return None
        begun = [other for other in {key: None, **self._begun} if self._is_new(other)]
        self._begun.clear()
        for other in begun:
            self._fallen.put(other, BEGUN)
            self._falls[other] = object()
        try:
            self._fallen.save_now()
        except OSError as error:  # after a power loss the log may be offline instead of cut
            for other in begun:
                self._fallen.drop(other)
            self._begun.update(dict.fromkeys(begun))
            self._report(f"{self.root}: writing a checkpoint failed: {error}")
            return error
        self.settle()
        return None

    def know_whole(self, key: TopicPartition, synced_end: int) -> None:
        """A log of which no recovery point is known is about to get a further segment: the start has read all of it, so
        what is synced by now is whole. Said durably, or a power loss that tears what comes next would be damage."""
        if self.recovery.offsets.get(key, UNKNOWN) != UNKNOWN:
            return
        self._fallen.put(key, synced_end)
        self._falls[key] = object()
        try:
            self._fallen.save_now()
        except OSError as error:  # after a power loss the log may be offline instead of cut
            self._fallen.drop(key)
            self._report(f"{self.root}: writing a checkpoint failed: {error}")
        else:
            self.recovery.put(key, synced_end)
            self.settle()

    def _is_new(self, key: TopicPartition) -> bool:
        """Whether the log was begun here, and no file says so yet."""
        return (
            self.recovery.offsets.get(key) == 0 and key not in self.recovery.durable and key not in self._fallen.offsets
        )

    def saved_recovery(self, key: TopicPartition) -> int:
        """The recovery point that a start after a crash would find."""
        saved = self.recovery.durable.get(key, 0)
        return min(saved, self._fallen.offsets.get(key, saved))

    def save_starts(self, key: TopicPartition, *, may_lose_end: bool) -> Promise[None]:
        """Resolved when the start of this log, as it is now, survives a crash: no older fall of it may count then.

        `may_lose_end`: the page cache counts as durable, so that the start may be above the end then. That is no damage
        of a log that is known to be new.
        """
        failed = self.know(key)
        if failed is not None and may_lose_end:
            return Promise[None].failed(failed)
        return self.starts.save() if self._fallen.offsets.get(key, BEGUN) == BEGUN else self.settle()

    def settle(self) -> Promise[None]:
        """Have the other files hold what fell, then forget it; failed where one of them couldn't be written."""
        settled: Promise[None] = Promise()
        falls = dict(self._falls)
        saved = [file.save() for file in self._falling]

        def done(_: object) -> None:
            try:
                for promise in saved:
                    promise.result()
                self._forget(falls)
            except OSError as error:
                settled.fail(error)
            else:
                settled.resolve(None)

        gather(saved).on_done(done)
        return settled

    def settled(self) -> None:
        """All files were just written."""
        self._forget(self._falls)

    def finish(self) -> Steps[None]:
        """At a clean stop: write all files down. Raises OSError."""
        for file in self.files:
            if file.offsets or file.durable or file not in (self.memory, self.cleaner):
                yield from settled(file.save_again())
        self.settled()

    def _forget(self, falls: dict[TopicPartition, object]) -> None:
        """The other files hold these. Durably: or else they would count again after what comes next."""
        fallen = self._fallen.offsets
        kept: dict[TopicPartition, int] = {}
        for key in [key for key in fallen if falls.get(key) is self._falls.get(key)]:
            kept[key] = fallen[key]
            self._fallen.drop(key)
        try:
            if self._fallen.offsets:
                self._fallen.save_now()
            elif self._disk.exists(f"{self.root}/{FALLEN}"):
                self._disk.remove(f"{self.root}/{FALLEN}")
                self._disk.sync_folder(self.root)
        except OSError:
            fallen.update(kept)
            raise
        for key in kept:
            self._falls.pop(key, None)

    def hold(self, key: TopicPartition) -> bool:
        """Whether something may stand in a file that must not count for a new log of this name."""
        return any(file.may_hold(key) for file in self._falling)

    def claim(self, key: TopicPartition) -> None:
        """A new log takes this name: nothing that stands in a file for an older one of the name may count for it."""
        if self.hold(key):
            self.fall({key: 0})

    def claim_soon(self, key: TopicPartition) -> Promise[None]:
        """The same, off the loop; settled when the name is free, failed where a file can't be written."""
        settled: Promise[None] = Promise()
        for file in self._falling:
            file.drop(key)
        saved = [file.save() for file in self._falling]

        def done(_: object) -> None:
            error = next((promise.error for promise in saved if promise.error is not None), None)
            if error is not None:
                settled.fail(error)
            else:
                settled.resolve(None)

        gather(saved).on_done(done)
        return settled

    def lower_clean_end(self, key: TopicPartition, log_end: int) -> None:
        """The log ends here: what was compacted beyond it is no more, and what comes in its place isn't compacted."""
        if self.cleaner.offsets.get(key, 0) > log_end:
            self.fall({key: log_end})

    def lower_clean_end_soon(self, key: TopicPartition, log_end: int) -> Promise[None]:
        """The same, off the loop; resolved when it is durable."""
        if self.cleaner.offsets.get(key, 0) <= log_end:
            return Promise[None].resolved(None)
        self.cleaner.put(key, log_end)
        return self.cleaner.save()

    def drop(self, key: TopicPartition) -> None:
        for file in self.files:
            file.drop(key)

    @property
    def idle(self) -> bool:
        return all(file.idle for file in self.files)
