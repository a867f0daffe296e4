"""What spans logs: finding them at start, open files, group commit, checkpoints, deletion, clean stop.

A data folder belongs to one store at a time. At start the clean-shutdown mark is taken away, durably, before anything
is written; at a clean stop it comes back after everything else.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.env.child_processes import BesideTheLoop
from tidelog.env.promise import Promise
from tidelog.env.slices import ITEMS_A_STEP, whole
from tidelog.log.aborted import AbortedIndexError
from tidelog.log.beginning import Beginning, Beginnings
from tidelog.log.checkpoint_files import UNKNOWN, CheckpointFiles
from tidelog.log.checkpoints import PARTITION_METADATA, CheckpointError
from tidelog.log.clean_stop import CleanStop
from tidelog.log.commit import GroupCommit
from tidelog.log.cutting import Cuts
from tidelog.log.data_folders import DataFolders
from tidelog.log.durability import page_cache_counts
from tidelog.log.files import OpenFiles
from tidelog.log.folder_names import FolderNames
from tidelog.log.folder_syncs import FolderSyncs
from tidelog.log.high_watermarks import HighWatermarks
from tidelog.log.index_files import IndexFiles
from tidelog.log.journals import Journals
from tidelog.log.log import Log
from tidelog.log.looks import Looks
from tidelog.log.memory import MemoryLog
from tidelog.log.names import METADATA_TOPIC
from tidelog.log.opening import Opening, Openings, belongs_to_another, may_pass
from tidelog.log.partition_folders import choose
from tidelog.log.recoveries import Recoveries
from tidelog.log.recovery import LogFolder, Recovered
from tidelog.log.renames import FolderRenames
from tidelog.log.scan import BadBatch
from tidelog.log.serial_worker import SerialWorker
from tidelog.log.space import FreeSpace
from tidelog.log.starts import LogStarts
from tidelog.log.upkeep import Upkeep
from tidelog.log.windows import WindowReads
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.topic_partition import TopicPartition
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.broker import BrokerConfig
    from tidelog.config.topic import TopicConfig
    from tidelog.env import Environment
    from tidelog.env.slices import Steps
    from tidelog.log.folder import PartitionFolder
    from tidelog.log.reading import ReadableLog
    from tidelog.log.segment import Segment

IDLE_LOOK_S = 0.005

_logger = logging.getLogger("tidelog.log")


class Store:
    """All logs of a broker. `commit` is the group commit, `serial_worker` is for what readers ask of threads,
    `beginnings` are the logs that are made, `journals` those of the data folders. `looks` is for looks into batches.
    `recoveries` and `space` are what an operator wants to know; `offline` has partitions whose logs can't be served.
    `broker_epoch` stood in the marks of the last clean stop; None after any other.
    """

    def __init__(self, env: Environment, folders: list[str], config: BrokerConfig) -> None:
        self.env = env
        self.disk = env.disk
        self.clock = env.clock
        self.random = env.random
        self.config = config
        self.producer_expiration_ms = config.producer_id_expiration_ms
        self.files = OpenFiles(env.disk, config.tidelog_open_files_max)
        self.index_files = IndexFiles(env.disk, env.loop)
        journal_bytes = config.tidelog_journal_bytes
        self.journals = Journals(
            env, folders, journal_bytes, self.report, self.remove_soon, lambda logs: self.commit.settle(logs)
        )
        self.commit = GroupCommit(env, self.logs, self.journals)
        self.serial_worker = SerialWorker(env.loop)
        self.child_processes = env.child_processes or BesideTheLoop(env.loop, env.disk)
        self.looks = Looks(self.child_processes, env.loop, env.clock)
        self.windows = WindowReads(env.disk, self.serial_worker)
        self.upkeep = Upkeep(env, self, config)
        self.recoveries = Recoveries()
        self.space = FreeSpace(env.disk, env.clock, folders)
        self.offline: set[TopicPartition] = set()
        self.on_offline: list[Callable[[ReadableLog], None]] = []  # who is told of logs that fail
        self.broker_epoch: int | None = None
        self._points = {folder: CheckpointFiles(env, folder, self.report) for folder in folders}
        # One for the metadata alone is no folder of the broker's that the controller knows of.
        data = [folder for folder in folders if folder in config.folders] or folders
        self._folders = DataFolders(env.disk, self._points, self.journals, self.upkeep.remove, self.report, data)
        self.data_folders = self._folders
        self._unopened = self._folders.partitions
        self._logs: dict[TopicPartition, Log] = {}
        self._folder_syncs = FolderSyncs(env, self._points, self.report)
        self._renames = FolderRenames(env, self._points, self._folder_syncs, self.upkeep.remove, self.report)
        self.starts = LogStarts(self._points)
        self.high_watermarks = HighWatermarks(self._points)
        self.cuts = Cuts(env, self._points, self.journals)
        self._names = FolderNames(env, self._points, self._folder_syncs, self.commit, self.upkeep)
        self._openings = Openings(env.loop, self._open_ended, self._opened_all)
        self._without_point: list[Log] = []  # opened, and are to have a recovery point
        self.beginnings = Beginnings(env, self._names.free, self._begun)
        self._closed = False
        self._finishing = False  # the checkpoints are written at the very end, all at once

    def report(self, message: str, *, level: int = logging.WARNING) -> None:
        """Tell the operator."""
        _logger.log(level, "%s", message)

    def went_offline(self, log: ReadableLog, reason: str) -> None:
        self.offline.add((log.topic, log.partition))
        self.report(f"{log.place} went offline: {reason}", level=logging.ERROR)
        for told in self.on_offline:
            told(log)

    # -- start and stop

    def start(self) -> None:
        """`look` and `admit` all folders."""
        self.look()
        for root in self._points:
            self.admit(root)

    def look(self) -> None:
        """Find out what is there, and write nothing. Whoever calls it holds the folders' locks."""
        self.broker_epoch = self._folders.look()
        self.recoveries.begin(len(self.unopened()), clean=not self.unopened() or self._folders.all_clean)
        self.upkeep.start()

    def admit(self, root: str) -> None:
        """The folder is the broker's: from now on it is written to. Logs are recovered when `log` is asked for them."""
        self._folders.admit(root)

    def stop(self, *, clean: bool = True, broker_epoch: int | None = -1) -> Promise[None]:
        """Flush everything and mark the folders clean; with `clean=False` just let go, as a crash would.

        `broker_epoch` None: that of the marks which were found. Resolved when all is on stable storage; no log serves
        any more then."""
        self.upkeep.stop()
        self._openings.stop()
        self.beginnings.stop()
        stopped: Promise[None] = Promise()
        if not clean:
            whole(self._close())
            stopped.resolve(None)
            return stopped

        def when_idle() -> None:
            idle = self.commit.idle and self.upkeep.idle and self._openings.idle and self.beginnings.idle
            if idle and self.cuts.idle and all(points.idle for points in self._points.values()):
                self._finishing = True
                self.env.loop.spread(self._finish(broker_epoch)).on_done(finished)
            else:
                self.env.loop.call_later(IDLE_LOOK_S, when_idle)

        def finished(done: Promise[None]) -> None:
            if done.error is not None:
                stopped.fail(done.error)
            else:
                stopped.resolve(None)

        when_idle()
        return stopped

    def _finish(self, broker_epoch: int | None) -> Steps[None]:
        stop = CleanStop(self.env, self.logs, self.upkeep, self.commit, self.starts, self._folders, self._points)
        yield from stop.run(broker_epoch)
        yield from self._close()

    def _close(self) -> Steps[None]:
        self._closed = True
        for place, log in enumerate(self.logs()):
            log.listener = None
            log.close()
            if place % ITEMS_A_STEP == 0:
                yield
        self._logs.clear()
        self.child_processes.close()

    # -- logs

    def log(self, topic: str, partition: int, topic_id: bytes, config: TopicConfig, folder: str | None = None) -> Log:
        """The partition's log: the one that is open, the one on disk, recovered, or a new one.

        Of a new one nothing is on disk before its first write; it lies in `folder`, or in the data folder with the
        fewest logs. A folder that belongs to another topic of the same name is put aside: should its id be what is
        damaged, the records are still there. What can't be opened is offline, and says why.

        One on disk is opened here and now, which takes long and syncs: that is for a start. Else `open` comes first.
        """
        key = topic, partition
        assert key not in self._openings, f"{topic}-{partition} is being opened"
        if folder is not None:
            self._unopened.choose(key, folder)
        known = self._logs.get(key)
        if known is not None:
            if known.topic_id == topic_id or ZERO_UUID in (known.topic_id, topic_id):
                return known
            self.delete(topic, partition, known.topic_id)
        if config.tidelog_storage == "memory":
            log = self._memory_log(key, topic_id, config)
        elif key in self._unopened:
            return self._open_now(self._opening_of(key, topic_id, config))
        else:
            log = self._new_log(folder or self._folders.emptiest(), key, topic_id, config)
        self._logs[key] = log
        return log

    def _new_log(self, root: str, key: TopicPartition, topic_id: bytes, config: TopicConfig) -> Log:
        log = Log(self, root, *key, topic_id, config)
        if key[0] != METADATA_TOPIC and not page_cache_counts(config):
            self.journals[root].want()
        self._folders.placed(root)
        if self._renames.is_in_the_way(log.folder) and not self._put_away(log.root, key):
            log.go_offline(f"{log.folder} is of a deleted topic and can't be renamed: do it, and restart")
        elif (reason := self._folders.gone(key)) is not None:
            log.go_offline(f"{reason}: restore it from a backup and restart, or delete the topic")
        else:
            for points in self._points.values():  # an older one's of the name: the next start would miss that one
                points.drop(key)
        return log

    # -- opening logs that are on disk

    @property
    def all_open(self) -> bool:
        """Whether `waits` is true of no log at all."""
        return not self._unopened and self._openings.idle and not self.beginnings

    def waits(self, topic: str, partition: int, config: TopicConfig) -> bool:
        """Whether `open` has something to do before `log` may be asked for this one."""
        key = topic, partition
        if key in self._openings or key in self.beginnings:
            return True
        return key in self._unopened and key not in self._logs and config.tidelog_storage != "memory"

    def open(
        self, topic: str, partition: int, topic_id: bytes, config: TopicConfig, asker: object = None
    ) -> Promise[None]:
        """Open a log that is on disk, off the loop; settled when `log` has it, or when to ask again, if `waits`.

        `asker` has its turn with all others. Fails with KAFKA_STORAGE_ERROR where the reason may pass.
        """
        key = topic, partition
        begun = self.beginnings.get(key)
        if begun is not None:  # of a topic that was deleted
            return begun.settled
        under_way = self._openings.get(key)
        if under_way is None:
            under_way = self._opening_of(key, topic_id, config)
            self._openings.begin(under_way, asker)
        return under_way.settled

    def also_wants(self, topic: str, partition: int, asker: object) -> None:
        """Another one waits for a log that `open` was asked for."""
        under_way = self._openings.get((topic, partition))
        if under_way is not None:
            self._openings.ask(under_way, asker)

    def _opening_of(self, key: TopicPartition, topic_id: bytes, config: TopicConfig) -> Opening:
        log_folder = self._log_folder(key, self._unopened[key])
        return Opening(self.disk, self.clock, self.producer_expiration_ms, log_folder, topic_id, config)

    def _log_folder(self, key: TopicPartition, root: str) -> LogFolder:
        points = self._points[root]
        recovery_point = points.recovery_point(key)
        lost = recovery_point == UNKNOWN
        return LogFolder(
            root,
            *key,
            clean=self._folders.is_clean(root) and not lost,
            lost=lost,
            recovery_point=None if lost else recovery_point,
            log_start=points.starts.offsets.get(key, 0),
            clean_end=points.cleaner.offsets.get(key, 0),
            durable=self._folders.is_clean(root) or points.was_flushed(key),
            journal=self.journals[root].entries(key),
            journal_lasts=self.journals[root].lasts(key),
        )

    def _open_now(self, opening: Opening) -> Log:
        found: Recovered | None = None
        failed: BaseException | None = None
        try:
            found = opening.run()
            if found is not None:
                self._points[opening.log_folder.root].lower_clean_end(opening.log_folder.key, found.ends.log_end)
        except (OSError, BadBatch, AbortedIndexError) as error:
            failed = error
        self._tell(opening)
        return self._put_in_place(opening, found, failed)

    def _open_ended(self, opening: Opening, done: Promise[Recovered | None]) -> Promise[None]:
        """A log was opened off the loop; settled when it is in its place."""
        self._tell(opening)
        log_folder, error = opening.log_folder, done.error
        found = None if error is not None else done.result()
        if self._discarded(opening):
            return Promise[None].resolved(None)
        lowered = Promise[None].resolved(None)
        if found is not None:
            lowered = self._points[log_folder.root].lower_clean_end_soon(log_folder.key, found.ends.log_end)

        def put(saved: Promise[None]) -> None:
            if not self._discarded(opening):
                failed = error or saved.error
                if may_pass(failed):
                    self.files.shrink()
                    reason = f"opening {log_folder.path} failed: {failed}; it is tried again"
                    self.report(reason)
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
                self._put_in_place(opening, found, failed)

        return lowered.then(put)

    def _discarded(self, opening: Opening) -> bool:
        """Whether nobody wants the log any more that was opened; its folder is put away then."""
        log_folder = opening.log_folder
        if opening.deleted and not self._closed:
            self._unopened.drop(log_folder.key)
            self._put_away(log_folder.root, log_folder.key)
            self.journals.forget(log_folder.key)
        return opening.deleted or self._closed

    def _tell(self, opening: Opening) -> None:
        """Of what came up while a log was opened."""
        self.recoveries.add(opening)
        for path, delay_ms in opening.leftovers:
            self.upkeep.remove(path, delay_ms)

    def _put_in_place(self, opening: Opening, found: Recovered | None, error: BaseException | None) -> Log:
        """What was opened is served from now on; what wasn't is offline, and says why."""
        log_folder = opening.log_folder
        log = Log(self, log_folder.root, *log_folder.key, opening.topic_id, opening.config, found)
        if isinstance(error, BadBatch | AbortedIndexError):
            log.go_offline(f"{log.folder} is damaged: {error}. Restore the file, or delete the topic")
        elif error is not None:
            if not isinstance(error, OSError):  # a bug of ours
                _logger.error("opening %s failed", log.folder, exc_info=error)
            log.go_offline(f"opening {log.folder} failed: {error}")
        elif found is None:
            self._refuse_folder(log)
        elif (shortfall := self.recoveries.shortfall(opening, found)) is not None:
            log.go_offline(shortfall)
        else:
            self.journals.opened(log)
            if found.start_moved:
                self.starts.moved(log)
            if log.unsynced.dirty:
                self.wrote(log)
            if log_folder.lost:
                self._without_point.append(log)
                if self._openings.idle:
                    self._opened_all()
        self._unopened.drop(log_folder.key)
        self._logs[log_folder.key] = log
        return log

    def _opened_all(self) -> None:
        """Nobody waits for a log: those without a recovery point are flushed, many together. Until they were, a power
        loss may take one offline; but while others are opened each flush would be of the few that just were."""
        logs, self._without_point = self._without_point, []
        for log in logs:
            if not log.deleted and not self._closed:
                self.flush_soon(log)

    def logs(self) -> list[Log]:
        """Those that are open."""
        return list(self._logs.values())

    def opened(self, topic: str, partition: int) -> Log | None:
        """The one of a partition, where it is open."""
        return self._logs.get((topic, partition))

    def found_in(self, topic: str, partition: int) -> str | None:
        """The data folder of one that is on disk, and nobody asked for yet."""
        return self._unopened.get((topic, partition))

    def unopened(self) -> list[TopicPartition]:
        """(topic, partition) of the folders on disk that nobody asked for yet: retention and scrub don't reach them."""
        return [key for key in self._unopened if key[0] != METADATA_TOPIC]

    def _refuse_folder(self, log: Log) -> None:
        """The folder in the log's place is another topic's."""
        if log.topic == METADATA_TOPIC:
            path = f"{log.folder}/{PARTITION_METADATA}"
            raise CheckpointError(f"{path} names another topic than the metadata log: restore or remove that file")
        key = log.topic, log.partition
        self.journals.forget(key)
        try:
            for root in self._unopened.all_of(key):
                self._renames.put_aside(root, key, f"no topic has the folder of {log.place}")
                with suppress(OSError):  # it is tried again, and the first write waits for it
                    self._folder_syncs.sync_now(root, log.folder)  # what the log lacks from now on must not come back
        except OSError as error:
            log.go_offline(f"{log.folder} is another topic's and can't be renamed: {error}. Do it, and restart")

    def put_stray_aside(self, topic: str, partition: int) -> None:
        """No topic of the cluster has this folder: rename it, as Kafka does, so that an operator can look at it.

        Where that can't be done, it is in the way of a topic of that name, and of no other.
        """
        key = topic, partition
        for root in self._unopened.all_of(key):
            self._renames.put_aside_or_pass_over(root, key, f"no topic has the folder {root}/{topic}-{partition}")
        self._unopened.drop(key)
        self.journals.forget(key)

    def found_twice(self) -> list[TopicPartition]:
        """Partitions that are in more than one data folder."""
        return list(self._unopened.several())

    def choose_folder(self, topic: str, partition: int, topic_id: bytes) -> None:
        """Of several folders of a partition keep that of this topic, and put the others aside; FolderError: which?"""
        key = topic, partition
        folders = [self._log_folder(key, root) for root in self._unopened.several()[key]]
        kept = choose(self.disk, folders, topic_id, self.report)
        for folder in folders:
            if folder.root != kept:
                self._renames.put_aside_or_pass_over(folder.root, key, f"{folder.path} is another topic's")
                self.journals[folder.root].hand_over(key, topic_id, self.journals.get(kept or ""))
        self._unopened.choose(key, kept or "")

    def _memory_log(self, key: TopicPartition, topic_id: bytes, config: TopicConfig) -> MemoryLog:
        end = max(points.memory.offsets.get(key, 0) for points in self._points.values())  # whichever was the first
        return MemoryLog(self, next(iter(self._points)), *key, topic_id, config, end)

    def reserve(self, log: MemoryLog, offset: int) -> Promise[None]:
        """Have a log in memory go on at `offset` after a restart; resolved when it would."""
        file = self._points[log.root].memory
        file.put((log.topic, log.partition), offset)
        return file.save()

    # -- deletion

    def delete(self, topic: str, partition: int, topic_id: bytes) -> None:
        """The topic was deleted: its folder is renamed at once and removed after file.delete.delay.ms."""
        key = topic, partition
        log = self._logs.get(key)
        if log is not None:
            if log.topic_id != topic_id:
                return
            del self._logs[key]
            self.offline.discard(key)
            self._let_go(log)
            if key not in self.beginnings and self.disk.exists(log.folder):
                self._put_away(log.root, key, log.config.file_delete_delay_ms)
            log.close()
            if not isinstance(log, MemoryLog):
                self._folders.left(log.root, key)
            self._points[log.root].drop(key)
            for points in self._points.values():  # of logs in memory whichever folder was the first has it
                points.memory.drop(key)
            self.journals.deleted(log)
            return
        under_way = self._openings.get(key)
        if under_way is not None:
            under_way.deleted = under_way.deleted or under_way.topic_id == topic_id
            return
        for root in self._unopened.all_of(key):
            self._delete_unopened(key, root, topic_id)

    def _delete_unopened(self, key: TopicPartition, root: str, topic_id: bytes) -> None:
        """A start hears once more of each deletion since the last checkpoint of the metadata: the next topic of the
        name may be there by then, in this data folder or another, and be known to the journal only."""
        if self._belongs_to_another(key, root, topic_id):
            return
        journal = self.journals[root]
        journal.forget(key, topic_id)
        is_next_there = bool(journal.entries(key))
        if is_next_there and self._belongs_to_another(key, root, topic_id):
            return
        if not is_next_there:
            self._unopened.leave(key, root)
            self._folders.left(root, key)
        self._put_away(root, key)

    def _belongs_to_another(self, key: TopicPartition, root: str, topic_id: bytes) -> bool:
        reports: list[str] = []
        another = belongs_to_another(self.disk, self._log_folder(key, root), topic_id, reports)
        for message in reports:
            self.report(message)
        return another

    def _let_go(self, log: Log) -> None:
        log.deleted = True
        self._names.deleted(log)
        log.listener = None
        log.offline = log.offline or "the topic was deleted"
        self.upkeep.let_go(log)

    def _put_away(self, root: str, key: TopicPartition, delay_ms: int | None = None) -> bool:
        """Rename a deleted partition's folder, and remove it later; whether its name is free."""
        delay = self.config.log_segment_delete_delay_ms if delay_ms is None else delay_ms
        return self._renames.put_away(root, key, delay)

    # -- what logs ask for

    def wrote(self, log: Log) -> None:
        self.upkeep.wrote(log)

    def flush_soon(self, log: Log) -> None:
        self.upkeep.flush_soon(log)

    def recovered_to(self, log: Log) -> None:
        """The log's recovery point moved on."""
        recovery = self._points[log.root].recovery
        self.journals.flushed(log)
        recovery.put((log.topic, log.partition), log.recovery_point)
        self.high_watermarks.note(log)
        if not self._finishing:
            recovery.save().on_done(lambda _: self.upkeep.deletion.flush_ended(log))

    def draw_jitter_ms(self, config: TopicConfig) -> int:
        """By how much a segment rolls earlier than others."""
        jitter = self.random.random_int(0, config.segment_jitter_ms) if config.segment_jitter_ms else 0
        return min(jitter, config.roll_ms)

    def rolls(self, log: Log) -> None:
        """The log is about to get a further segment."""
        points, key = self._points[log.root], (log.topic, log.partition)
        points.know_whole(key, log.ends.synced_end)
        points.know(key)

    def claim(self, log: Log) -> None:
        """The folder of the log is about to be made."""
        self._names.claim(log)

    def made_folder(self, log: Log) -> None:
        """The folder of the log is there, and nothing in it."""
        self._points[log.root].begun((log.topic, log.partition))

    # -- the first write to a log

    def begin(self, log: Log) -> Promise[None] | None:
        """Make the files of a new log, off the loop; settled when that was tried. None: the first write does it."""
        return self.beginnings.begin(log)

    def check_not_begun(self, log: Log) -> None:
        """Raises where the files of the log are being made off the loop."""
        if (log.topic, log.partition) in self.beginnings:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the files of {log.place} are being made: try again")

    def _begun(self, beginning: Beginning) -> None:
        log = beginning.log
        if self._closed:
            return
        if log.deleted:
            if self.disk.exists(log.folder):
                self._put_away(log.root, (log.topic, log.partition), log.config.file_delete_delay_ms)
        elif beginning.segment is not None and log.offline is None:
            self.made_folder(log)
            log.take_first(beginning.segment)

    def remove_segment(self, segment: Segment, delay_ms: int = 0) -> None:
        """Rename its files, so that their names are free, and remove them after `delay_ms`."""
        for path in segment.set_aside(self.disk):
            self.upkeep.remove(path, delay_ms)

    # -- compaction

    def saved_recovery_point(self, log: PartitionFolder) -> int:
        """Where a start after a crash would begin to read."""
        return self._points[log.root].saved_recovery((log.topic, log.partition))

    def clean_end(self, folder: PartitionFolder) -> int:
        """How far the log was compacted."""
        return self._points[folder.root].cleaner.offsets.get((folder.topic, folder.partition), 0)

    def cleaned_to(self, log: Log, offset: int) -> None:
        """The log was compacted, durably, up to `offset`."""
        self._points[log.root].cleaner.put((log.topic, log.partition), offset)
        self._points[log.root].cleaner.save()

    def remove_soon(self, path: str) -> None:
        self.upkeep.remove(path, 0)
