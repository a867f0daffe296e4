"""Group commit: everyone who waits for a log waits for the same sync of it.

While a log is synced, requests for it gather for the next sync. A sync covers what was written when it began: whatever
comes later waits for the next one. Logs are synced beside each other, each by a thread: one after the other, each waits
for its own turn of disk and scheduler (measured with 200 B in each of n files on a busy machine, ext4 without a
journal, n = 2 / 4 / 8: one after the other 5.6 / 12 / 23 ms, beside each other 0.5 / 0.6 / 0.8 ms). A thread has the
disk begin with all of its files before it waits for the first (`start_sync`: 64 KB in each of 1,000 files, eight
threads, 62-88 ms without it and 48-51 ms with; on an ext4 with a journal 149-165 ms and 66-77 ms). Many at once are
cheaper by one `syncfs` (1 KB in each of 100 / 1,000 files: fdatasync in 8 threads 7 / 57 ms, one syncfs 1.0 / 5.8 ms),
which also writes whatever else is dirty there, so that nothing runs beside it.

Small commits go to the journal of the data folder instead, where there is one (journal.py): its cost doesn't depend on
the number of files, nor on who else writes. It takes one commit at a time, and whoever comes meanwhile is in the next.
Nothing of the operating system's memory counts there but what was read back and is sound, so that a commit to it goes
on beside any sync, and doesn't wait for one. What it holds is synced later (`settle`), a few logs at a time.

The metadata log has a lane of its own: it is synced however many other syncs are under way, and waits for one of them
at most, a `syncfs` or one that has to do with the same folder. A `syncfs` that waits for its turn is passed once.

A failed sync takes its logs offline: what the operating system dropped then can't be told, and asking again would be
answered as if nothing had happened. That holds between two syncs at the same time too: the flush that moves recovery
points syncs the same files, the kernel tells of an error once, and the one that isn't told succeeds. So a failure
counts at once, and a success only when whatever else was under way on the same log has ended, and ended well. A failed
`syncfs` may have dropped what any log of the data folder had in memory.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.log.bounds import (
    JOURNALED_LOGS_MAX,
    LOGS_A_SETTLE,
    SETTLES_TOGETHER_MAX,
    SYNC_EACH_MAX,
    SYNCED_LOGS_MAX,
    SYNCS_TOGETHER_MAX,
)
from tidelog.log.checkpoints import PARTITION_METADATA
from tidelog.log.names import LOG, METADATA_TOPIC
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.env import Environment
    from tidelog.env.disk import Disk, File
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps
    from tidelog.log.journal import Journal, JournalMark, JournalWrite
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment

TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
"""Nothing could be opened, so nothing was lost either: tried again after `AGAIN_S`."""
AGAIN_S = 0.1


def missing(log: Log, gone: set[str]) -> str | None:
    """A file among those that are gone that belongs to the log: retention and deletion didn't take it."""
    return next((path for segment in log.segments if (path := segment.stem + LOG) in gone), None)


class Mark(NamedTuple):
    """How far a log was written when the sync began, and the files and folders that must be durable for that.

    A file that is open is synced as it is; others are opened off the loop. What the kernel noted of a failed write is
    told to whoever asks first, however late the file was opened.
    """

    log: Log
    generation: int
    end: int
    segment: Segment | None
    size: int
    sealed: tuple[Segment, ...]
    files: list[tuple[str, File | None]]
    folders: list[str]


class Syncing:
    """One sync of some logs. `run` is for off the loop: it touches nothing but the disk.

    `errors` has what went wrong, by path; a root's entry concerns all of its logs. `whole`: there are too many files
    to sync each of them.
    """

    __slots__ = ("_disk", "errors", "marks", "whole")

    def __init__(self, disk: Disk, marks: list[Mark], *, whole: bool) -> None:
        self._disk = disk
        self.marks = marks
        self.whole = whole
        self.errors: dict[str, OSError] = {}

    def run(self) -> None:
        for root in {mark.log.root: None for mark in self.marks}:
            files: dict[str, File | None] = {}
            folders: dict[str, None] = {}
            for mark in self.marks:
                if mark.log.root == root:
                    files.update(mark.files)
                    folders.update(dict.fromkeys(mark.folders))
            try:
                if self.whole and len(files) + len(folders) > SYNC_EACH_MAX:
                    self._disk.sync_all(root)
                    continue
            except OSError as error:
                self.errors[root] = error
                continue
            if len(files) > 1:
                for file in files.values():
                    if file is not None:
                        file.start_sync()
            for path, file in files.items():
                self._sync_file(path, file)
            for folder in folders:
                self._sync_folder(folder)

    def _sync_file(self, path: str, file: File | None) -> None:
        try:
            (self._disk.open(path) if file is None else file).sync()
        except OSError as error:
            self.errors[path] = error

    def _sync_folder(self, folder: str) -> None:
        try:
            self._disk.sync_folder(folder)
        except OSError as error:
            self.errors.setdefault(folder, error)

    def error_of(self, mark: Mark) -> OSError | None:
        """What concerns this log. Files that are gone and not missed, since their segments went too, don't.

        After a truncation other files may have the names of those that went.
        """
        errors = self.errors
        if not errors:
            return None
        if mark.log.root in errors:
            return errors[mark.log.root]
        kept = mark.log.segments if mark.generation == mark.log.ends.generation else ()
        paths = {segment.stem + LOG for segment in kept}
        found: OSError | None = None
        for path in [path for path, _ in mark.files] + mark.folders:
            error = errors.get(path)
            if error is not None and not (isinstance(error, FileNotFoundError) and path not in paths):
                if error.errno not in TOO_MANY_FILES:
                    return error
                found = error
        return found


class Flush(Protocol):
    """A flush that runs beside the group commit."""

    def concerns(self, log: Log) -> bool:
        """Whether it may sync files of this log."""
        ...


class GroupCommit:
    """No log has two syncs at a time; `request` gathers. `logs` are those that a failed `syncfs` may concern.

    `journals` are those of the data folders.
    """

    __slots__ = (
        "_busy",
        "_env",
        "_flush",
        "_flush_ended",
        "_held",
        "_journals",
        "_logs",
        "_passed",
        "_scheduled",
        "_settling",
        "_syncing",
        "_telling",
        "_to_journal",
        "_to_settle",
        "_waiting",
    )

    def __init__(
        self, env: Environment, logs: Callable[[], Iterable[Log]], journals: Mapping[str, Journal] | None = None
    ) -> None:
        self._env = env
        self._logs = logs
        self._journals = journals or {}
        self._waiting: dict[Log, None] = {}
        self._to_journal: dict[str, dict[Log, None]] = {root: {} for root in self._journals}
        self._to_settle: dict[Log, None] = {}
        self._settling: list[Syncing] = []  # those of `_syncing` that nobody waits for
        self._scheduled = False
        self._passed: int | None = None  # how often the metadata log went before a `syncfs` that waits
        self._syncing: list[Syncing] = []
        self._busy: set[Log] = set()  # those that are being synced
        self._telling = 0  # rounds of telling, in steps, what was held
        self._flush: Flush | None = None
        # How note is taken of a flush that has ended, and the syncs that began before.
        self._flush_ended: tuple[Callable[[], None], list[Syncing]] | None = None
        self._held: list[Mark] = []  # synced, while a flush was under way that may have been told of an error instead

    def request(self, log: Log) -> None:
        """Make everything written so far in `log` durable soon; it tells its listener then."""
        if log.unsynced.requested or log.offline is not None:
            return
        journal = self._journals.get(log.root)
        if journal is None or log.topic == METADATA_TOPIC:
            self._request_sync(log)
        elif journal.is_ready:
            log.unsynced.request()
            self._to_journal[log.root][log] = None
            if not journal.is_busy:
                self._start_soon()
        else:
            journal.want()
            self._request_sync(log)

    def _request_sync(self, log: Log) -> None:
        """The same by a sync of its files."""
        log.unsynced.request()
        self._waiting[log] = None
        if len(self._syncing) < SYNCS_TOGETHER_MAX or log.topic == METADATA_TOPIC:
            self._start_soon()

    def settle(self, logs: list[Log]) -> None:
        """Sync these when there is time for it: they are in the journal."""
        self._to_settle.update(dict.fromkeys(logs))
        self._start_soon()

    @property
    def idle(self) -> bool:
        waiting = (
            self._waiting or any(self._to_journal.values()) or any(each.is_busy for each in self._journals.values())
        )
        return not waiting and not self._syncing and not self._held and not self._telling

    def syncs(self, log: Log) -> bool:
        """Whether the log is being synced."""
        return log in self._busy

    # -- beside a flush

    def flush_begins(self, flush: Flush) -> None:
        """Until `flush_ends`, what is synced of the logs that it concerns doesn't count yet."""
        self._flush = flush

    def flush_ends(self, take_note: Callable[[], None]) -> None:
        """Have note taken of the flush: when the syncs that are under way beside it have ended, and failed perhaps."""
        flush = self._flush
        beside = [
            syncing
            for syncing in self._syncing
            if flush is not None and any(flush.concerns(mark.log) for mark in syncing.marks)
        ]
        if beside:
            self._flush_ended = take_note, beside
        else:
            self._end_flush(take_note)

    def _end_flush(self, take_note: Callable[[], None]) -> None:
        self._flush = self._flush_ended = None
        held, self._held = self._held, []
        take_note()
        if held:
            self._telling += 1
            self._env.loop.spread(self._take_notes(held)).on_done(self._told)

    def _take_notes(self, held: list[Mark]) -> Steps[None]:
        for mark in held:
            self._take_note(mark, None)
            yield

    def _told(self, done: Promise[None]) -> None:
        self._telling -= 1
        done.result()

    def root_failed(self, root: str, error: OSError) -> None:
        """A sync of all that is below `root` failed: whatever wasn't durable yet is lost perhaps."""
        for log in self._logs():
            if log.root == root and log.may_lose:
                log.go_offline(f"a sync of everything in {root} failed: {error}")

    # -- syncing

    def _start_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._env.loop.call_soon(self._start)

    def _start(self) -> None:
        """Begin what may begin; the rest stays in `_waiting` until a sync has ended."""
        self._scheduled = False
        for root, logs in self._to_journal.items():
            if logs and not self._journals[root].is_busy:
                self._start_journaling(self._journals[root], logs)
        self._start_metadata()
        self._start_syncing()
        self._start_settling()

    def _start_metadata(self) -> None:
        log = next((log for log in self._waiting if log.topic == METADATA_TOPIC), None)
        if log is None or log in self._busy or self._passed or any(each.whole for each in self._syncing):
            return
        if log.unsynced.naming and any(mark.folders for each in self._syncing for mark in each.marks):
            return
        del self._waiting[log]
        if log.offline is None:
            if self._passed is not None:
                self._passed += 1
            self._begin([mark_of(log)])

    def _start_syncing(self) -> None:
        syncing = self._syncing
        if len(syncing) >= SYNCS_TOGETHER_MAX or any(each.whole for each in syncing):
            return
        logs = [log for log in self._waiting if log not in self._busy]
        # New names are synced with the folders, which logs share: one sync at a time has to do with them.
        naming = any(mark.folders for each in syncing for mark in each.marks)
        if naming:
            logs = [log for log in logs if not log.unsynced.naming]
        del logs[SYNCED_LOGS_MAX:]
        whole = sum(log.unsynced.parts for log in logs) > SYNC_EACH_MAX and not any(
            journal.is_ready for journal in self._journals.values()
        )
        if whole and syncing:
            self._passed = self._passed or 0
            return
        self._passed = None
        if whole:
            self._begin(self._take(logs), whole=True)
            return
        self._begin(self._take([log for log in logs if log.unsynced.naming]))
        lanes = SYNCS_TOGETHER_MAX - len(syncing)
        if lanes <= 0:
            return  # the others wait until one of these has ended
        plain = self._take([log for log in logs if log in self._waiting])
        for first in range(min(lanes, len(plain))):
            self._begin(plain[first::lanes])

    def _take(self, logs: list[Log]) -> list[Mark]:
        """What is to be synced of them: they wait no longer."""
        for log in logs:
            del self._waiting[log]
        return [mark_of(log) for log in logs if log.offline is None]

    def _start_settling(self) -> None:
        naming = any(mark.folders for each in self._syncing for mark in each.marks)
        whole = any(each.whole for each in self._syncing)
        while self._to_settle and len(self._settling) < SETTLES_TOGETHER_MAX and not whole:
            logs: list[Log] = []
            for log in list(self._to_settle):
                if log in self._busy or (naming and log.unsynced.naming):
                    continue  # it has its turn when that is done
                del self._to_settle[log]
                if log.offline is None and not log.deleted:
                    logs.append(log)
                    if len(logs) == LOGS_A_SETTLE:
                        break
            if not logs:
                return
            for log in logs:
                self._waiting.pop(log, None)  # it is synced, as it wants
            marks = [mark_of(log) for log in logs]
            naming = naming or any(mark.folders for mark in marks)
            self._settling.append(self._begin(marks))

    def _begin(self, marks: list[Mark], *, whole: bool = False) -> Syncing:
        syncing = Syncing(self._env.disk, marks, whole=whole)
        if marks:
            self._syncing.append(syncing)
            self._busy.update(mark.log for mark in marks)
            self._env.loop.run_blocking(syncing.run).on_done(lambda promise: self._done(syncing, promise))
        return syncing

    # -- the journal

    def _start_journaling(self, journal: Journal, logs: dict[Log, None]) -> None:
        """Commit what waits for the journal; what isn't for it is synced."""
        marks: list[JournalMark] = []
        room = journal.commit_bytes_max
        for log in list(logs):
            if len(marks) >= JOURNALED_LOGS_MAX or room <= 0:
                break
            del logs[log]
            log.unsynced.begin_journaling()
            if log.offline is None:
                mark = log.journal_mark()
                if mark is None:
                    self._request_sync(log)
                else:
                    marks.append(mark)
                    room -= mark.size - mark.position
        if not marks:
            return
        write = journal.begin(marks)
        if write is None:
            for mark in marks:
                self._request_sync(mark.log)
        else:
            self._env.loop.run_blocking(write.run).on_done(lambda promise: self._journaled(journal, write, promise))

    def _journaled(self, journal: Journal, write: JournalWrite, promise: Promise[None]) -> None:
        promise.result()
        journal.ended(write)
        if write.error is not None:
            write.left_out, write.written = write.marks, []
        for mark in write.left_out:
            self._sync_instead(mark.log)
        for mark in write.written:
            log = mark.log
            if not log.deleted and log.offline is None and not log.journaled(mark):
                self._sync_instead(log)
        if not journal.is_ready:
            logs = self._to_journal[journal.root]
            for log in list(logs):
                del logs[log]
                self._request_sync(log)
        self._start_soon()

    def _sync_instead(self, log: Log) -> None:
        if not log.deleted and log.offline is None and not log.unsynced.requested:
            self._request_sync(log)

    def _done(self, syncing: Syncing, promise: Promise[None]) -> None:
        self._syncing.remove(syncing)
        if syncing in self._settling:
            self._settling.remove(syncing)
        self._busy.difference_update(mark.log for mark in syncing.marks)
        promise.result()
        flush = self._flush
        for root in {mark.log.root: None for mark in syncing.marks}:
            error = syncing.errors.get(root)
            if error is not None and error.errno not in TOO_MANY_FILES:  # else nothing was tried, and it is again
                self.root_failed(root, error)
        for mark in syncing.marks:
            error = syncing.error_of(mark)
            if error is None and flush is not None and flush.concerns(mark.log):
                self._held.append(mark)
            else:
                self._take_note(mark, error)
        if self._flush_ended is not None:
            take_note, beside = self._flush_ended
            if syncing in beside:
                beside.remove(syncing)
            if not beside:
                self._end_flush(take_note)
        if self._waiting or self._to_settle:
            self._start_soon()

    def _take_note(self, mark: Mark, error: OSError | None) -> None:
        log = mark.log
        if log.deleted or log.offline is not None:
            return
        if error is not None and error.errno in TOO_MANY_FILES:
            log.sync_not_tried()
            self._env.loop.call_later(AGAIN_S, self._sync_instead, log)
        elif error is not None:
            log.go_offline(f"a sync of {log.folder} failed: {error}")
        elif not log.synced(mark):
            self._sync_instead(log)


def mark_of(log: Log) -> Mark:
    """Note how far the log is written, and what must be synced for that."""
    active, ends = log.segments.active, log.ends
    sealed, names, folder = log.unsynced.begin_sync()
    segments = list(sealed)
    if active is not None and ends.log_end > ends.synced_end:
        segments.append(active)
    files = [(segment.path, segment.file) for segment in segments]
    folders = [log.folder] if names else []
    if folder:
        folders.append(log.root)
        if log.topic_id != ZERO_UUID and log.segments:
            files.append((f"{log.folder}/{PARTITION_METADATA}", None))
    return Mark(
        log, ends.generation, ends.log_end, active, 0 if active is None else active.size, sealed, files, folders
    )


def sync_now(disk: Disk, log: Log) -> None:
    """Make the log durable in its files, here and now, whatever else is under way. Raises OSError."""
    mark = mark_of(log)
    syncing = Syncing(disk, [mark], whole=False)
    syncing.run()
    error = syncing.error_of(mark)
    if error is not None:
        raise error
    if disk.exists(f"{log.folder}/{PARTITION_METADATA}"):
        disk.open(f"{log.folder}/{PARTITION_METADATA}").sync()
    disk.sync_folder(log.folder)
    disk.sync_folder(log.root)
