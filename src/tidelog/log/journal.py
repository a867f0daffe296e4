"""The journal of a data folder: small commits of any number of logs, made durable by one write to one file.

Syncing a file for each log takes long where many are written, where files are new, and where somebody else keeps the
file system busy. So batches that wait for a commit are read back from their segments and written, together, to a file
of a fixed size all of whose bytes were written before, and one sync of that makes them count as durable. Their segments
are synced later, when nobody waits for it. At a start after a crash recovery goes on behind a log's segments with what
the journal has (journal_replay.py).

Two files take turns. When one is full the other takes its place, if all that it holds is durable in the segments by
then; where it isn't there is no room, and logs are synced themselves. Files of an earlier life of the broker stay until
each log that they know of was opened, or is of no topic any more.

A log that is cut is synced first; then nothing that the journal has of it counts any longer, durably (`VOIDS`).
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from errno import ENOSPC
from functools import partial
from posixpath import dirname
from typing import TYPE_CHECKING, NamedTuple

from tidelog.log import checkpoints
from tidelog.log.bounds import JOURNALS_KEPT_MAX
from tidelog.log.checkpoints import CheckpointError
from tidelog.log.journal_blocks import (
    Piece,
    batches_of,
    block_bytes,
    damage_at,
    encode_block,
    entry_bytes,
    read_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.env import Environment
    from tidelog.env.disk import Disk, FixedFile
    from tidelog.env.promise import Promise
    from tidelog.log.journal_blocks import Block, Entry
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment
    from tidelog.wire.topic_partition import TopicPartition

JOURNAL = "tidelog-journal-"
VOIDS = "tidelog-journal-voids"
"""Up to which block nothing counts of a log, by topic and partition."""
AGAIN_S = 10.0
"""After so long it is tried again to make the files, where that failed."""


class JournalState(Enum):
    """Of a journal that is to be used. What earlier lives left is read and kept whatever it is.

            wanted             made
    Absent --------> Making ---------> Ready ---------> Failed
       ^                |                  a write failed
       | after a while  v
       +-------------- Resting
                        it couldn't be made

    From every state it is Off after a clean stop. Commits go to one that is Ready, and in every other state logs are
    synced themselves: nobody waits for a change of it. Failed lasts until the next start, since what a failed sync left
    on the disk can't be told.
    """

    OFF = "off"
    """There is none: by its setting, or any more."""
    ABSENT = "absent"
    """Its files aren't made yet."""
    MAKING = "making"
    RESTING = "resting"
    """They couldn't be made: it is tried again after `AGAIN_S`."""
    READY = "ready"
    FAILED = "failed"


TRANSITIONS: dict[JournalState, frozenset[JournalState]] = {
    JournalState.OFF: frozenset({JournalState.OFF}),
    JournalState.ABSENT: frozenset({JournalState.MAKING, JournalState.OFF}),
    JournalState.MAKING: frozenset({JournalState.READY, JournalState.RESTING, JournalState.OFF}),
    JournalState.RESTING: frozenset({JournalState.ABSENT, JournalState.OFF}),
    JournalState.READY: frozenset({JournalState.FAILED, JournalState.OFF}),
    JournalState.FAILED: frozenset({JournalState.OFF}),
}


class JournalMark(NamedTuple):
    """What of a log is to be committed: the bytes of its last segment from `position` on, offsets from `start` on."""

    log: Log
    generation: int
    segment: Segment
    position: int
    size: int
    start: int
    end: int


class JournalWrite:
    """One block. `run` is for off the loop; then `written` are the marks that are in it, and `left_out` the others.

    `error`: of the journal itself. Nothing is written of a log whose bytes can't be read back, or aren't sound.
    """

    def __init__(self, disk: Disk, file: FixedFile, position: int, number: int, marks: list[JournalMark]) -> None:
        self.marks = marks
        self.number = number
        self.bytes = 0
        self.written: list[JournalMark] = []
        self.left_out: list[JournalMark] = []
        self.error: OSError | None = None
        self._disk = disk
        self._file = file
        self._position = position

    def run(self) -> None:
        pieces: list[Piece] = []
        for mark in self.marks:
            piece = self._read_back(mark)
            if piece is None:
                self.left_out.append(mark)
            else:
                self.written.append(mark)
                pieces.append(piece)
        if not pieces:
            return
        block = encode_block(self.number, pieces)
        try:
            self._file.write(self._position, block)
            self._file.sync()
            self.bytes = len(block)
        except OSError as error:
            self.error = error

    def _read_back(self, mark: JournalMark) -> Piece | None:
        try:
            file = mark.segment.file or self._disk.open(mark.segment.path)
            data = file.read(mark.position, mark.size - mark.position)
        except OSError:
            return None
        found = batches_of(data)
        if not found or len(data) != mark.size - mark.position:
            return None
        if found[0].base < mark.start or found[-1].end != mark.end:
            return None
        log = mark.log
        return Piece(log.topic, log.topic_id, log.partition, mark.segment.base, mark.start, mark.end, data)


class _Turn:
    """One of the two files: what was written to it since it was last used anew, and how far each log is in there.

    `first`: the lowest number of a block that a start would find in it.
    """

    def __init__(self, file: FixedFile, first: int) -> None:
        self.file = file
        self.first = first
        self.position = 0
        self._logs: set[Log] = set()
        self._logs_before: set[Log] = set()  # those of its use before, until that can't come back
        self._unsettled: dict[Log, int] = {}

    def add(self, number: int, marks: Iterable[JournalMark], size: int) -> None:
        """A block is in it, durably."""
        if not self.position:
            self.first = number
            self._logs_before.clear()
        self.position += size
        for mark in marks:
            self._logs.add(mark.log)
            self._unsettled.pop(mark.log, None)  # the last to come is the last to be settled
            self._unsettled[mark.log] = mark.end

    def tried(self, marks: Iterable[JournalMark]) -> None:
        """A block couldn't be written, and may be in it all the same: a start would take it for sound."""
        self._logs.update(mark.log for mark in marks)

    def knows(self, log: Log) -> bool:
        return log in self._logs or log in self._logs_before

    def unsettled(self) -> list[Log]:
        return [log for log, end in self._unsettled.items() if not _is_settled(log, end)]

    def is_settled(self) -> bool:
        """Whether all that it holds is durable in the segments."""
        while self._unsettled:
            log, end = next(iter(self._unsettled.items()))
            if not _is_settled(log, end):
                return False
            del self._unsettled[log]
        return True

    def logs(self) -> set[Log]:
        """Those of which it may hold something."""
        return self._logs | self._logs_before

    def forget(self, log: Log) -> None:
        """All that it holds of the log is void."""
        self._unsettled.pop(log, None)
        self._logs.discard(log)
        self._logs_before.discard(log)

    def begin_again(self) -> None:
        self.position = 0
        self._logs, self._logs_before = set(), self._logs


def _is_settled(log: Log, end: int) -> bool:
    """Whether the log doesn't need the journal up to this offset. One that is offline may, at the next start."""
    return log.deleted or (log.offline is None and log.ends.synced_end >= end)


class Journal:
    """Of one data folder, `root`. `size`: of both files together; 0: there is none.

    `is_ready`: commits may go there. `is_busy`: one is under way, and the next waits for it. `settle` is told of logs
    that should be synced, since their file is full.
    """

    def __init__(
        self,
        env: Environment,
        root: str,
        size: int,
        report: Callable[[str], None],
        remove: Callable[[str], None],
        settle: Callable[[list[Log]], None],
    ) -> None:
        self._env = env
        self.root = root
        self._file_bytes = size // 2
        self._report = report
        self._remove = remove
        self._settle = settle
        self._turns: list[_Turn] = []  # the first is the one that is written
        self._state = JournalState.ABSENT if self._file_bytes else JournalState.OFF
        self._under_way: JournalWrite | None = None
        self._number = 0
        self._files = 0  # numbers of files
        self._told = False  # that they couldn't be made
        self._known: dict[TopicPartition, list[Entry]] = {}  # of earlier lives
        self._kept: list[str] = []  # their files
        self._kept_keys: frozenset[TopicPartition] = frozenset()  # what they hold, until they are gone for good
        self._voids: dict[TopicPartition, int] = {}
        self._last_kept: list[tuple[str, Block]] = []  # of each file, by its path
        self._kept_durably = False
        self.damaged = False
        """What earlier lives left isn't all there."""

    @property
    def state(self) -> JournalState:
        return self._state

    def _to(self, state: JournalState) -> None:
        assert state in TRANSITIONS[self._state], f"{self.root}: its journal is {self._state}, and can't become {state}"
        self._state = state

    # -- a start: what earlier lives left

    def load(self, *, clean: bool) -> None:
        """Read what is there, and write nothing. `clean`: a mark says so, whose ever. None of it counts then."""
        disk = self._env.disk
        for name in disk.list_folder(self.root):
            number = file_number(name)
            if number is not None:
                self._files = max(self._files, number + 1)
                self._kept.append(f"{self.root}/{name}")
        if clean:
            return
        blocks = self._read_kept()
        try:
            self._voids = checkpoints.read_offsets(disk, f"{self.root}/{VOIDS}")
        except CheckpointError as error:  # it is written whole, or not at all
            self._report(f"{error}: going on without it; what a follower had dropped may be there again")
        for block in blocks:
            self._number = block.number + 1
            for entry in block.entries:
                if entry.number > self._voids.get(entry.key, -1):
                    self._known.setdefault(entry.key, []).append(entry)
        self._number = max([self._number, *(number + 1 for number in self._voids.values())])
        self._kept_keys = frozenset(self._known)

    def _read_kept(self) -> list[Block]:
        """All blocks, in the order of their numbers. Damage that no power loss does is told."""
        files = [self._env.disk.open_fixed(path) for path in self._kept]
        found = [list(read_blocks(file)) for file in files]
        blocks = sorted((block for each in found for block in each), key=lambda block: block.number)
        newest = blocks[-1].number if blocks else -1
        self._last_kept = [(file.path, each[-1]) for file, each in zip(files, found, strict=True) if each]
        for file, each in zip(files, found, strict=True):
            at, last = (each[-1].end, each[-1].number) if each else (0, newest)
            if (damage := damage_at(file, at, last)) is not None:
                self.damaged = True
                self._report(f"{file.path} byte {at}: {damage}; records that were acknowledged may be lost")
        return blocks

    def keys(self) -> list[TopicPartition]:
        """The logs that it may add to."""
        return list(self._known)

    def entries(self, key: TopicPartition) -> tuple[Entry, ...]:
        return tuple(self._known.get(key, ()))

    def admitted(self) -> None:
        """The data folder is written to from now on. Files in which nothing counts would wait for no log to be
        opened: they go now."""
        if self._kept and not self._known:
            self._drop_kept()
        else:
            self._make_kept_durable()

    def _make_kept_durable(self) -> None:
        """Who was killed while a block was written, or when its sync had failed, may have left that in memory only: the
        last of a file, since one comes after the other. It is written once more: then it is dirty (rewriting.py), and
        the sync means something. Where that fails, logs are made durable as they are opened."""
        try:
            for path, block in self._last_kept:
                file = self._env.disk.open_fixed(path)
                file.write(block.start, file.read(block.start, block.end - block.start))
                file.sync()
        except OSError as error:
            self._report(f"{self.root}: the journal of an earlier life can't be written again: {error}")
        else:
            self._kept_durably = True

    def lasts(self, key: TopicPartition) -> bool:
        """Whether `entries` are durable, and stay so until `opened`: they may be of another data folder's journal."""
        known = self._known.get(key, ())
        return bool(known) and self._kept_durably and all(dirname(entry.path) == self.root for entry in known)

    def discard(self) -> None:
        """Nothing of it counts: before that is forgotten, it goes, durably."""
        if self._names():
            self.remove_files()
            self._env.disk.sync_folder(self.root)
        self._kept.clear()

    def _names(self) -> list[str]:
        names = self._env.disk.list_folder(self.root)
        return [name for name in names if name.startswith(VOIDS) or file_number(name) is not None]

    def opened(self, key: TopicPartition, topic_id: bytes, log_end: int) -> None:
        """The log has what was known of it, durably. What it hasn't, since it didn't fit, must not fit later either.

        Raises OSError where that can't be said.
        """
        if any(entry.end > log_end and entry.topic_id == topic_id for entry in self._known.get(key, ())):
            self._void([key])
        self.forget(key)

    def hand_over(self, key: TopicPartition, topic_id: bytes, other: Journal | None) -> None:
        """The log isn't in this data folder: it is in that of `other`, where it was moved to after a crash, say.

        What is known of it counts there, if nothing of the topic was written there since. Its files stay until then.
        """
        entries = [entry for entry in self.entries(key) if entry.topic_id == topic_id]
        if other is None or not entries or any(entry.topic_id == topic_id for entry in other.entries(key)):
            self.forget(key)
        else:
            other.take_over(key, entries)

    def take_over(self, key: TopicPartition, entries: list[Entry]) -> None:
        """What the journal of another data folder knows of a log that is in this one."""
        self._known[key] = entries

    def forget(self, key: TopicPartition, topic_id: bytes | None = None) -> None:
        """Nobody needs what is known of the log; with `topic_id`: of that of this topic, and not of others of its
        name."""
        known = self._known.pop(key, None)
        if known is None:
            return
        kept = [entry for entry in known if topic_id not in (None, entry.topic_id)]
        if kept:
            self._known[key] = kept
        elif not self._known:
            self._drop_kept()

    def _drop_kept(self) -> None:
        disk, root, kept = self._env.disk, self.root, tuple(self._kept)

        def remove() -> None:
            for path in kept:
                with suppress(FileNotFoundError):
                    disk.remove(path)
            disk.sync_folder(root)

        def removed(done: Promise[None]) -> None:
            if done.error is None:
                self._kept.clear()
                self._kept_keys = frozenset()
            else:  # they do no harm: what is cut is void as long as they are there
                self._report(f"{root}: removing a journal failed: {done.error}; the next start does it")

        self._env.loop.run_blocking(remove).on_done(removed)

    # -- commits

    @property
    def is_ready(self) -> bool:
        return self._state is JournalState.READY

    @property
    def is_busy(self) -> bool:
        return self._under_way is not None

    @property
    def commit_bytes_max(self) -> int:
        """Of one block."""
        return self._file_bytes // 4

    def want(self) -> None:
        """Somebody could use it: make the files, off the loop, unless that was done."""
        if self._state is not JournalState.ABSENT or len(self._kept) > JOURNALS_KEPT_MAX:
            return
        self._to(JournalState.MAKING)
        paths = [f"{self.root}/{JOURNAL}{self._files + number}" for number in range(2)]
        self._files += 2
        make = partial(_make, self._env.disk, self.root, paths, self._file_bytes)
        self._env.loop.run_blocking(make).on_done(partial(self._made, paths))

    def _made(self, paths: list[str], done: Promise[list[FixedFile]]) -> None:
        if self._state is not JournalState.MAKING:  # the broker stops
            return
        if done.error is None:
            self._turns = [_Turn(file, self._number) for file in done.result()]
            self._to(JournalState.READY)
            return
        self._to(JournalState.RESTING)
        if not self._told:
            self._told = True
            self._report(
                f"{self.root}: making a journal failed: {done.error}; it is tried again, logs are synced meanwhile"
            )
        for path in paths:
            self._remove(path)
        self._env.loop.call_later(AGAIN_S, self._end_rest)

    def _end_rest(self) -> None:
        if self._state is JournalState.RESTING:
            self._to(JournalState.ABSENT)

    def begin(self, marks: list[JournalMark]) -> JournalWrite | None:
        """A commit of these; None where there is no room."""
        assert self._under_way is None, f"{self.root}: two commits at a time"
        size = block_bytes(sum(entry_bytes(mark.log.topic, mark.size - mark.position) for mark in marks))
        turn = self._turns[0]
        if turn.position + size > self._file_bytes:
            if size > self._file_bytes or not self._turns[1].is_settled():
                return None
            self._turns.reverse()
            self._settle(turn.unsettled())
            turn = self._turns[0]
            turn.begin_again()
        write = JournalWrite(self._env.disk, turn.file, turn.position, self._number, marks)
        self._under_way = write
        return write

    def ended(self, write: JournalWrite) -> None:
        """The commit was tried. Where it failed, the journal isn't used any more in this life; what it holds stays."""
        self._under_way = None
        if write.error is not None:
            self._to(JournalState.FAILED)
            self._turns[0].tried(write.marks)
            self._report(f"{self.root}: its journal failed: {write.error}; logs are synced themselves from now on")
            for turn in self._turns:
                self._settle(turn.unsettled())
        elif write.bytes:
            self._turns[0].add(write.number, filter(_counts, write.written), write.bytes)
        self._number += 1

    # -- a log is cut

    def holds(self, log: Log) -> bool:
        """Whether something is in it that a start might add to this log."""
        write = self._under_way
        return (
            any(turn.knows(log) for turn in self._turns)
            or (write is not None and any(mark.log is log for mark in write.marks))
            or log.key in self._kept_keys
        )

    def void(self, logs: list[Log]) -> None:
        """Durably: nothing counts any more of what was written of these logs so far. All of it is durable elsewhere."""
        if logs:
            self._void([log.key for log in logs])
        for log in logs:
            for turn in self._turns:
                turn.forget(log)

    def void_all(self, keys: set[TopicPartition]) -> None:
        """Durably: nothing counts any more of what was written so far of these, which are no logs of this broker's any
        more."""
        write = self._under_way
        logs = {log for turn in self._turns for log in turn.logs() if log.key in keys}
        held = {log.key for log in logs} | (keys & self._kept_keys)
        held |= set() if write is None else {mark.log.key for mark in write.marks} & keys
        if not held:
            return
        try:
            self._void(held)
        except OSError as error:  # after a crash it is known of the folder that it isn't this broker's
            self._report(f"{self.root}: what the journal has of partitions that went can't be made void: {error}")
        for turn in self._turns:
            for log in logs:
                turn.forget(log)

    def _void(self, keys: Iterable[TopicPartition]) -> None:
        """Up to the block that is under way, too."""
        if not self._kept:
            first = min((turn.first for turn in self._turns), default=self._number)
            self._voids = {other: number for other, number in self._voids.items() if number >= first}
        self._voids.update(dict.fromkeys(keys, self._number))
        if self._under_way is None:
            self._number += 1
        checkpoints.write_offsets(self._env.disk, f"{self.root}/{VOIDS}", self._voids)

    # -- the end

    def close(self) -> None:
        """A clean stop: all that it holds is durable in the segments. `remove_files` may come next."""
        assert self._under_way is None, f"{self.root}: closed in the middle of a commit"
        self._to(JournalState.OFF)
        self._turns.clear()

    def remove_files(self) -> None:
        """For off the loop, too: it touches nothing but the disk. Nothing of the journal counts any more.

        What says that something is void goes last. Others may be removing old files meanwhile.
        """
        disk = self._env.disk
        for name in sorted(self._names(), key=lambda name: name == VOIDS):
            with suppress(FileNotFoundError):
                disk.remove(f"{self.root}/{name}")


def _counts(mark: JournalMark) -> bool:
    """Whether the log wasn't cut meanwhile: then all of it is void."""
    return mark.generation == mark.log.ends.generation


def file_number(name: str) -> int | None:
    """The number in the name of one of its files; None for another's."""
    number = name.removeprefix(JOURNAL)
    return int(number) if name.startswith(JOURNAL) and number.isascii() and number.isdigit() else None


def _make(disk: Disk, root: str, paths: list[str], size: int) -> list[FixedFile]:
    """Where as much room stays for records: they need it more."""
    free, needed = disk.free_bytes(root), 2 * size * len(paths)
    if free < needed:
        raise OSError(ENOSPC, f"{free:,} bytes are free, and {needed:,} should be")
    return [disk.make_fixed(path, size) for path in paths]
