"""What spans logs: finding them at start, open files, group commit, checkpoints, deletion, clean stop.

A data folder belongs to one store at a time. At start the clean-shutdown mark is taken away, durably, before anything
is written; at a clean stop it comes back after everything else.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from posixpath import dirname
from typing import TYPE_CHECKING

from tidelog.env.promise import Promise
from tidelog.log import checkpoints, flush, recovery
from tidelog.log.checkpoints import CLEAN_SHUTDOWN, PARTITION_METADATA, CheckpointError
from tidelog.log.commit import GroupCommit
from tidelog.log.files import OpenFiles
from tidelog.log.lane import Lane
from tidelog.log.log import Log
from tidelog.log.memory import MemoryLog
from tidelog.log.names import (
    DELETE_FOLDER,
    DELETED,
    METADATA_TOPIC,
    SEGMENT_FILES,
    deleted_folder,
    parse_partition_folder,
    partition_folder,
    stray_folder,
)
from tidelog.log.points import Key, Points
from tidelog.log.scan import BadBatch
from tidelog.log.upkeep import Upkeep
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.topic import TopicConfig
    from tidelog.env import Environment
    from tidelog.log.reading import ReadableLog
    from tidelog.log.segment import Segment

STOP_TOGETHER = 1024
IDLE_LOOK_S = 0.005

_logger = logging.getLogger("tidelog.log")


class Store:
    """All logs of a broker. `commit` is the group commit, `lane` is for what readers ask of threads.

    `broker_epoch` stood in the mark of the last clean stop; None after any other.
    """

    def __init__(self, env: Environment, folders: list[str], config: BrokerConfig) -> None:
        self.env = env
        self.disk = env.disk
        self.clock = env.clock
        self.random = env.random
        self.config = config
        self.producer_expiration_ms = config.producer_id_expiration_ms
        self.files = OpenFiles(env.disk, config.tidelog_open_files_max)
        self.commit = GroupCommit(env, self.logs)
        self.lane = Lane(env.loop)
        self.upkeep = Upkeep(env, self, config)
        self.broker_epoch: int | None = None
        self._points = {folder: Points(env, folder, self.report) for folder in folders}
        self._clean: dict[str, bool] = {}
        self._found: dict[Key, str] = {}
        self._logs: dict[Key, Log] = {}
        self._folder_syncs: set[str] = set()
        self._in_the_way: set[str] = set()  # folders of deleted topics that couldn't be renamed
        self._moves: dict[Log, tuple[Promise[None], int]] = {}  # starts that are being saved, and what holds if not
        self._finishing = False  # the checkpoints are written at the very end, all at once

    def report(self, message: str) -> None:
        """Tell the operator."""
        _logger.warning("%s", message)

    # -- start and stop

    def start(self) -> None:
        """Read the checkpoints and list what is there. Logs are recovered when `log` is asked for them.

        Whoever calls it holds the folders' locks.
        """
        for root, points in self._points.items():
            self.disk.make_folders(root)
            with suppress(PermissionError):  # its parent may be someone else's, who then made it long ago
                self.disk.sync_folder(dirname(root) or "/")
            points.load()
            mark = f"{root}/{CLEAN_SHUTDOWN}"
            epoch = self._clean_epoch(mark)
            self._clean[root] = epoch is not None and not points.recovery.broken
            if epoch is not None:
                self.broker_epoch = epoch
                self.disk.remove(mark)
            self.disk.sync_folder(root)  # after a crash the folders of logs may be known to the page cache only
            for name in self.disk.list_folder(root):
                key = parse_partition_folder(name)
                if name.endswith(DELETE_FOLDER):
                    self.upkeep.remove(f"{root}/{name}", 0, folder=True)
                elif key is not None and self.disk.is_folder(f"{root}/{name}"):
                    self._found[key] = root
        self.upkeep.start()

    def _clean_epoch(self, mark: str) -> int | None:
        try:
            return checkpoints.read_clean_shutdown(self.disk, mark)
        except CheckpointError as error:
            self.report(f"{error}; reading the logs as after a crash")
            return None

    def stop(self, *, clean: bool = True, broker_epoch: int = -1) -> Promise[None]:
        """Flush everything and mark the folders clean; with `clean=False` just let go, as a crash would.

        Resolved when all is on stable storage. No log serves any more then.
        """
        self.upkeep.stop()
        stopped: Promise[None] = Promise()
        if not clean:
            self._close()
            stopped.resolve(None)
            return stopped

        def when_idle() -> None:
            if self.commit.idle and self.upkeep.idle and all(points.idle for points in self._points.values()):
                try:
                    self._finish(broker_epoch)
                except OSError as error:
                    stopped.fail(error)
                else:
                    stopped.resolve(None)
            else:
                self.env.loop.call_later(IDLE_LOOK_S, when_idle)

        when_idle()
        return stopped

    def _finish(self, broker_epoch: int) -> None:
        """Everything that isn't durable yet, then the checkpoints, then the mark."""
        self._finishing = True
        dirty = self.upkeep.dirty
        for first in range(0, len(dirty), STOP_TOGETHER):
            jobs = self.upkeep.prepare(dirty[first : first + STOP_TOGETHER], closing=True)
            if jobs:
                saving = flush.Saving(self.disk, jobs)
                saving.run()
                self.upkeep.take_note(saving, None)
        for log in self._logs.values():
            points = self._points[log.root]
            if isinstance(log, MemoryLog):
                points.memory.put((log.topic, log.partition), log.log_end)
            elif log.segments:
                self._note_start(log)
                hw = log.log_end if log.high_watermark < 0 else log.high_watermark
                points.replication.put((log.topic, log.partition), hw)
        for root, points in self._points.items():
            for file in points.files:
                if file.offsets or file not in (points.memory, points.cleaner):
                    file.save_now()
            points.settled()
            # A folder found after a crash that nobody asked for was never recovered: the next start has to do it.
            recovered = self._clean[root] or root not in self._found.values()
            unfinished = set(self.upkeep.dirty)
            if recovered and all(
                log.offline is None and log not in unfinished for log in self._logs.values() if log.root == root
            ):
                checkpoints.write_clean_shutdown(self.disk, f"{root}/{CLEAN_SHUTDOWN}", broker_epoch)
        self._close()

    def _close(self) -> None:
        for log in self._logs.values():
            log.listener = None
            log.close()
        self._logs.clear()

    # -- logs

    def log(self, topic: str, partition: int, topic_id: bytes, config: TopicConfig, folder: str | None = None) -> Log:
        """The partition's log: the one that is open, the one on disk, recovered, or a new one.

        Of a new one nothing is on disk before its first write; it lies in `folder`, or in the data folder with the
        fewest logs. A folder that belongs to another topic of the same name is put aside: should its id be what is
        damaged, the records are still there. What can't be opened is offline, and says why.
        """
        key = topic, partition
        known = self._logs.get(key)
        if known is not None:
            if known.topic_id == topic_id or ZERO_UUID in (known.topic_id, topic_id):
                return known
            self.delete(topic, partition, known.topic_id)
        if config.tidelog_storage == "memory":
            log = self._memory_log(key, topic_id, config)
        else:
            root = self._found.get(key)
            another = root is not None and self._belongs_to_another(root, key, topic_id)
            log = Log(self, root or folder or self._emptiest(), topic, partition, topic_id, config)
            if another:
                self._refuse_folder(log)
            elif root is not None:
                self._load(log)
            elif log.folder in self._in_the_way and not self._put_away(log.root, key):
                log.go_offline(f"{log.folder} is of a deleted topic and can't be renamed: do it, and restart")
            self._found.pop(key, None)
        self._logs[key] = log
        return log

    def logs(self) -> list[Log]:
        """Those that are open."""
        return list(self._logs.values())

    def found(self) -> list[Key]:
        """(topic, partition) of the folders on disk that nobody asked for yet: retention and scrub don't reach them."""
        return [key for key in self._found if key[0] != METADATA_TOPIC]

    def _refuse_folder(self, log: Log) -> None:
        """The folder in the log's place is another topic's."""
        if log.topic == METADATA_TOPIC:
            path = f"{log.folder}/{PARTITION_METADATA}"
            raise CheckpointError(f"{path} names another topic than the metadata log: restore or remove that file")
        try:
            self.put_aside(log.topic, log.partition)
        except OSError as error:
            log.go_offline(f"{log.folder} is another topic's and can't be renamed: {error}. Do it, and restart")

    def put_aside(self, topic: str, partition: int) -> None:
        """No topic of the cluster has this folder: rename it, as Kafka does, so that an operator can look at it."""
        key = topic, partition
        root = self._found[key]
        renamed = f"{root}/{stray_folder(*key, self.random.uuid())}"
        self.disk.rename(f"{root}/{partition_folder(*key)}", renamed)
        del self._found[key]
        self._points[root].drop(key)
        self._sync_folder_soon(root)
        self.report(
            f"no topic has the folder of {topic}-{partition}: it is now {renamed}, delete it if you don't need it"
        )

    def saved_high_watermark(self, topic: str, partition: int) -> int | None:
        """The high watermark as of the last checkpoint."""
        for points in self._points.values():
            found = points.replication.offsets.get((topic, partition))
            if found is not None:
                return found
        return None

    def _load(self, log: Log) -> None:
        key = log.topic, log.partition
        points = self._points[log.root]
        try:
            recovery.load(
                log,
                clean=self._clean[log.root],
                recovery_point=points.recovery.offsets.get(key),
                log_start=points.starts.offsets.get(key, 0),
                lost=points.recovery.broken,
            )
            recovery.name_topic(log)
            points.lower_clean_end(key, log.log_end)
        except BadBatch as error:
            log.go_offline(f"{log.folder} is damaged: {error}. Restore the file, or delete the topic")
        except OSError as error:
            log.go_offline(f"opening {log.folder} failed: {error}")

    def _memory_log(self, key: Key, topic_id: bytes, config: TopicConfig) -> MemoryLog:
        root = next(iter(self._points))
        return MemoryLog(self, root, *key, topic_id, config, self._points[root].memory.offsets.get(key, 0))

    def reserve(self, log: MemoryLog, offset: int) -> None:
        """Have a log in memory go on at `offset` after a restart. Raises OSError."""
        file = self._points[log.root].memory
        file.put((log.topic, log.partition), offset)
        file.save_now()

    def _emptiest(self) -> str:
        """The data folder with the fewest logs."""
        if len(self._points) == 1:
            return next(iter(self._points))
        counts = dict.fromkeys(self._points, 0)
        for log in self._logs.values():
            counts[log.root] += 1
        return min(counts, key=lambda root: counts[root])

    def _belongs_to_another(self, root: str, key: Key, topic_id: bytes) -> bool:
        path = f"{root}/{partition_folder(*key)}/{PARTITION_METADATA}"
        try:
            found = checkpoints.read_partition_metadata(self.disk, path)
        except CheckpointError as error:
            # A folder's first sync is that of this file too. What was never made durable may be an older topic's, if
            # the power took its deletion back.
            if key[0] != METADATA_TOPIC and not self._clean[root] and not self._points[root].recovery.durable.get(key):
                self.report(f"{error}, and nothing in its folder was made durable")
                return topic_id != ZERO_UUID
            self.report(f"{error}; taking the folder for the topic's own")
            return False
        return found is not None and topic_id != ZERO_UUID and found != topic_id

    # -- deletion

    def delete(self, topic: str, partition: int, topic_id: bytes) -> None:
        """The topic was deleted: its folder is renamed at once and removed after file.delete.delay.ms."""
        key = topic, partition
        log = self._logs.get(key)
        if log is not None:
            if log.topic_id != topic_id:
                return
            del self._logs[key]
            self._let_go(log)
            if log.segments or self.disk.exists(log.folder):
                self._put_away(log.root, key, log.config.file_delete_delay_ms)
            log.close()
            self._points[log.root].drop(key)
            return
        root = self._found.get(key)
        if root is not None and not self._belongs_to_another(root, key, topic_id):
            del self._found[key]
            self._put_away(root, key)

    def _let_go(self, log: Log) -> None:
        log.deleted = True
        log.listener = None
        log.offline = log.offline or "the topic was deleted"
        self.upkeep.let_go(log)

    def _put_away(self, root: str, key: Key, delay_ms: int | None = None) -> bool:
        """Rename a partition's folder, so that its name is free, and remove it later; whether that could be done."""
        renamed = f"{root}/{deleted_folder(*key, self.random.uuid())}"
        try:
            self.disk.rename(f"{root}/{partition_folder(*key)}", renamed)
        except OSError as error:
            self._in_the_way.add(f"{root}/{partition_folder(*key)}")
            self.report(f"putting away {root}/{partition_folder(*key)} failed: {error}")
            return False
        self._in_the_way.discard(f"{root}/{partition_folder(*key)}")
        self._points[root].drop(key)
        delay_ms = self.config.log_segment_delete_delay_ms if delay_ms is None else delay_ms
        self.upkeep.remove(renamed, delay_ms, folder=True)
        self._sync_folder_soon(root)
        return True

    def _sync_folder_soon(self, root: str) -> None:
        """Make renamed folders durable; once for all of this turn of the loop."""
        if root in self._folder_syncs:
            return
        self._folder_syncs.add(root)

        def begin() -> None:
            self._folder_syncs.discard(root)
            disk = self.disk
            self.env.loop.run_blocking(lambda: disk.sync_folder(root)).on_done(self._folder_synced)
            self._points[root].recovery.save()

        self.env.loop.call_soon(begin)

    def _folder_synced(self, done: Promise[None]) -> None:
        if done.error is not None:
            self.report(f"syncing a data folder failed: {done.error}")

    # -- what logs ask for

    def wrote(self, log: Log) -> None:
        self.upkeep.wrote(log)

    def flush_soon(self, log: Log) -> None:
        self.upkeep.flush_soon(log)

    def recovered_to(self, log: Log) -> None:
        """The log's recovery point moved on."""
        points = self._points[log.root]
        points.recovery.put((log.topic, log.partition), log.recovery_point)
        if log.high_watermark >= 0:
            points.replication.put((log.topic, log.partition), log.high_watermark)
        if not self._finishing:
            points.recovery.save()

    def save_recovery_point(self, log: Log) -> None:
        """The recovery point fell: durably, before anything is cut."""
        self._points[log.root].fall((log.topic, log.partition), log.recovery_point)

    def claim(self, log: Log) -> None:
        """The folder of the log is about to be made. Not while an older one of its name is still flushed or synced: its
        files are known by name, so that would write into this one, or be told of a failure in its place."""
        syncing = any(mark.log.folder == log.folder for each in self.commit._syncing for mark in each.marks)
        if syncing or self.upkeep.saving(log.folder):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.folder} was a deleted topic's a moment ago: try again"
            )
        self._points[log.root].claim((log.topic, log.partition))

    def start_moved(self, log: Log) -> None:
        """The log's start moved on, or all of the log did."""
        if not isinstance(log, MemoryLog):
            self._note_start(log)
            self._points[log.root].starts.save()

    def move_start(self, log: Log, before: int) -> None:
        """The log's start moved on from `before`, for a client: back again where that can't be made durable."""
        if isinstance(log, MemoryLog):
            log.start_saved()
            return
        key, offset, starts = (log.topic, log.partition), log.log_start, self._points[log.root].starts
        if log in self._moves:
            before = self._moves[log][1]
        starts.put(key, offset)
        move = self._moves[log] = self._points[log.root].save_starts(key), before

        def settled(saved: Promise[None]) -> None:
            if self._moves.get(log) is not move:
                return  # a later move decides
            del self._moves[log]
            if saved.error is None:
                log.start_saved()
            elif log.log_start == offset and not log.deleted:
                log.start_failed(before)
                starts.put(key, log.log_start)

        move[0].on_done(settled)

    def starts_saved(self, log: Log) -> Promise[None]:
        """Resolved when the log's start, as it is now, survives a crash; failed where it moved back instead."""
        move = self._moves.get(log)
        return self._points[log.root].save_starts((log.topic, log.partition)) if move is None else move[0]

    def _note_start(self, log: Log) -> None:
        """Also where a segment begins there: a power loss may bring deleted segments back, but not their records."""
        if log.log_start > 0:
            self._points[log.root].starts.put((log.topic, log.partition), log.log_start)

    def remove_segment(self, segment: Segment, delay_ms: int = 0) -> None:
        """Rename its files, so that their names are free, and remove them after `delay_ms`."""
        for path in self.set_aside(segment):
            self.upkeep.remove(path, delay_ms)

    def set_aside(self, segment: Segment) -> list[str]:
        """Rename its files, so that their names are free; their paths now."""
        renamed: list[str] = []
        for suffix in SEGMENT_FILES:
            path = segment.stem + suffix
            if self.disk.exists(path):
                self.disk.rename(path, path + DELETED)
                renamed.append(path + DELETED)
        return renamed

    # -- compaction

    def saved_recovery_point(self, log: ReadableLog) -> int:
        """Where a start after a crash would begin to read."""
        return self._points[log.root].recovery.durable.get((log.topic, log.partition), 0)

    def clean_end(self, log: ReadableLog) -> int:
        """How far the log was compacted."""
        return self._points[log.root].cleaner.offsets.get((log.topic, log.partition), 0)

    def cleaned_to(self, log: Log, offset: int) -> None:
        """The log was compacted, durably, up to `offset`."""
        cleaner = self._points[log.root].cleaner
        cleaner.put((log.topic, log.partition), offset)
        cleaner.save()

    def settled_start(self, log: Log) -> int:
        """The log's start, unless a move of it may still fail: then the one that holds in any case."""
        return self._moves[log][1] if log in self._moves else log.log_start

    def remove_soon(self, path: str) -> None:
        self.upkeep.remove(path, 0)
