"""Any history of writes, flushes, deletions, cleanings and crashes: what was durable is there, and nothing else is.

The process dies before any change of the disk, in the middle of a write too; the power goes; checkpoints, indexes and
snapshots are lost or damaged in between; topics are kept by fsync, by the page cache, or change from one to the other.

The simulator does this to a whole broker; here only the store lives, so that thousands of histories can be tried:
`python -m tests.log.test_any_history 0 2000`. It ends with how often each kind of fault came.
"""

import argparse
import logging
import sys
from collections import Counter
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from tests.batches import Producer
from tests.log.harness import EPOCH, LogHarness
from tests.log.keyed import COMPACT, end, put

from tidelog.env.network import Buffer
from tidelog.log import checkpoints, clean_stop
from tidelog.log.checkpoint_files import FALLEN
from tidelog.log.checkpoints import RECOVERY_POINT, CheckpointError
from tidelog.log.log import Log
from tidelog.log.names import OFFSET_INDEX, SNAPSHOT, TIME_INDEX
from tidelog.log.producer_state import load_producers
from tidelog.log.segment import Segment
from tidelog.log.snapshots import Snapshots
from tidelog.log.unsynced import Unsynced
from tidelog.sim.breaks import SAFEGUARDS, switched_off
from tidelog.sim.world.disk import SimDisk, SimFile
from tidelog.sim.world.inode import FileNode
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import iterate, records
from tidelog.wire.errors import KafkaError
from tidelog.wire.markers import read_marker

STEPS = 60
PRODUCERS = 4
DAMAGE = ("missing", "empty", "torn", "zeros", "garbage")
JOURNAL_BYTES = (0, 1 << 14, 1 << 15, 1 << 17)
DURABILITY = (
    ({"tidelog_durability": "fsync"}, 6),
    ({"tidelog_durability": "os"}, 2),
    ({"tidelog_durability": "os", "flush_messages": "3"}, 1),
    ({"tidelog_durability": "os", "flush_ms": "200"}, 1),
)


class Cut(BaseException):
    """The process is gone, in the middle of what it did."""


class DyingDisk(SimDisk):
    """Ends the process before one of its changes: after `left` more of them. `faults` counts what it came to."""

    left = -1

    def __init__(self, random: SimRandom, faults: Counter[str]) -> None:
        super().__init__(random)
        self.faults = faults

    def step(self, what: str) -> None:
        if self.left >= 0:
            self.left -= 1
            if self.left < 0:
                self.faults[f"death at {what}"] += 1
                raise Cut

    def open(self, path: str, *, create: bool = False) -> SimFile:
        if create and not self.exists(path):
            self.step("create")
        return super().open(path, create=create)

    def _opened(self, node: FileNode, path: str) -> SimFile:
        return DyingFile(self, node, path)

    def write_at(self, path: str, pos: int, data: Buffer) -> None:
        if self.left == 0:
            super().write_at(path, pos, memoryview(data)[: len(data) // 2])
        self.step("write over")
        super().write_at(path, pos, data)

    def rename(self, old: str, new: str) -> None:
        self.step("rename")
        super().rename(old, new)

    def sync_folder(self, path: str) -> None:
        self.step("sync of a folder")
        super().sync_folder(path)

    def sync_node(self, node: FileNode, path: str) -> None:
        self.step("sync")
        super().sync_node(node, path)

    def remove(self, path: str) -> None:
        self.step("remove")
        super().remove(path)

    def damage(self, path: str, how: str) -> None:
        """On the platter and in the cache."""
        data = self.read_whole(path)
        size = len(data)
        if how == "missing":
            super().remove(path)
            super().sync_folder(path.rpartition("/")[0])
            return
        left = {
            "empty": b"",
            "torn": data[: self.random.random_int(0, max(0, size - 1))],
            "zeros": bytes(size),
            "garbage": self.random.random_bytes(max(size, 5)),
        }
        self.put(path, left[how])


class DyingFile(SimFile):
    __slots__ = ()

    def append(self, data: Buffer) -> None:
        assert isinstance(self._disk, DyingDisk)
        if self._disk.left == 0:
            super().append(memoryview(data)[: len(data) // 2])
        self._disk.step("append")
        super().append(data)

    def truncate(self, size: int) -> None:
        assert isinstance(self._disk, DyingDisk)
        self._disk.step("truncate")
        super().truncate(size)


@dataclass(slots=True)
class Sender:
    """An idempotent producer, of transactions perhaps."""

    id: int
    transactional: bool
    epoch: int = 0
    sequence: int = 0
    open: bool = False
    """It has a transaction open."""
    first: int = -1
    """Where that begins."""


@dataclass(slots=True)
class Life:
    """One topic: what stands where, and what of it was durable."""

    topic_id: bytes
    settings: dict[str, str]
    values: dict[int, bytes] = field(default_factory=dict[int, bytes])
    ghosts: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """What is being cut off: until that is done it may come back."""
    snapshot_damaged: bool = False
    durable: int = 0
    start: int = 0
    start_max: int = 0
    senders: list[Sender] = field(default_factory=list[Sender])
    known: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    """What producers did: (the log's end then, producer id, last sequence, first offset of what is open or -1)."""

    @property
    def retained(self) -> bool:
        """Whether segments go by themselves."""
        return "retention_bytes" in self.settings or "retention_ms" in self.settings

    @property
    def compacted(self) -> bool:
        return "cleanup_policy" in self.settings


class History:
    def __init__(self, seed: int, faults: Counter[str] | None = None, journal_bytes: int | None = None) -> None:
        """`journal_bytes`: of the journal; None: the seed says how large it is, or that there is none."""
        self.random = SimRandom(f"history {seed}")
        self.stops = seed % 2
        self.faults = Counter[str]() if faults is None else faults
        self.disk = DyingDisk(self.random.fork("disk"), self.faults)
        self.harness = LogHarness(
            self.disk,
            log_flush_offset_checkpoint_interval_ms="1000",
            tidelog_journal_bytes=str(JOURNAL_BYTES[seed % 4] if journal_bytes is None else journal_bytes),
        )
        self.lives = 0
        self.troubled = False
        self.lost_point: int | None = None  # the recovery point that was lost, until there is another
        self.life = self._new_life()
        self.log = self._open()
        self.number = 0

    def _new_life(self) -> Life:
        self.lives += 1
        settings = {
            "internal_segment_bytes": str(self.random.choose((600, 2000, 100_000))),
            "index_interval_bytes": str(self.random.choose((0, 200, 4096))),
            "file_delete_delay_ms": self.random.choose(("0", "500", "60000")),
            **self.random.weighted(DURABILITY),
        }
        if self.random.chance(0.3):
            settings |= COMPACT
        elif self.random.chance(0.5):
            settings |= self.random.choose(({"retention_bytes": "1500"}, {"retention_ms": "800"}))
        senders = [Sender(10 * self.lives + n, n % 2 == 0) for n in range(PRODUCERS)]
        return Life(self.lives.to_bytes(16), settings, senders=senders)

    def _open(self) -> Log:
        return self.harness.log(topic_id=self.life.topic_id, **self.life.settings)

    def go(self) -> None:
        has_journal = self.harness.config.tidelog_journal_bytes > 0
        for _ in range(STEPS):
            step = self.random.weighted(
                (
                    *(((self.have_journal, 4), (self.commit, 20), (self.truncate, 3)) if has_journal else ()),
                    (self.write, 30),
                    (self.commit, 8),
                    (self.end, 8),
                    (self.flush, 3),
                    (self.delete_records, 2),
                    (self.retain, 5 if self.life.retained else 1),
                    (self.clean, 3),
                    (self.recreate, 1),
                    (self.rest, 2),
                    (self.crash, 4),
                    (self.stop, 1),
                    (self.trouble, 1),
                    (self.truncate, 1),
                    (self.switch, 1),
                )
            )
            if self.random.chance(0.05):
                self.disk.left = self.random.random_int(0, 25)
            try:
                step()
            except Cut:
                self.crash(whole=False)
            except KafkaError:
                assert self.troubled or self.log.offline is None, self.log.offline
            self.note_durable()
            if self.log.offline is not None:
                assert self.troubled, self.log.offline
                self.crash()
        self.crash()

    # -- what happens

    def write(self) -> None:
        life, sender = self.life, self.random.choose(self.life.senders)
        count = self.random.choose((1, 1, 2, 5))
        pairs: list[tuple[bytes | None, bytes | None]] = []
        for _ in range(count):
            self.number += 1
            filling = b"x" * self.random.choose((0, 50, 200))
            pairs.append((b"%d" % self.random.random_int(0, 5), b"%d-%s" % (self.number, filling)))
        producer = Producer(sender.id, sender.epoch, sender.sequence)
        now_ms = self.harness.now_ms() - self.random.choose((0, 0, 5, 300))
        base = put(self.log, *pairs, now_ms=now_ms, producer=producer, transactional=sender.transactional)
        sender.sequence += count
        if sender.transactional and not sender.open:
            sender.first = base
        life.known.append((self.log.log_end, sender.id, sender.sequence - 1, sender.first))
        for offset, (_, value) in enumerate(pairs, base):
            life.values[offset] = value or b""
        sender.open = sender.transactional

    def end(self) -> None:
        sender = self.random.choose(self.life.senders)
        if not sender.open:
            return
        commit = self.random.chance(0.5)
        marker = end(self.log, Producer(sender.id, sender.epoch, 0), commit=commit, now_ms=self.harness.now_ms())
        self.life.values.pop(marker, None)
        sender.open, sender.first = False, -1
        self.life.known.append((self.log.log_end, sender.id, sender.sequence - 1, -1))

    def commit(self) -> None:
        self.harness.store.commit.request(self.log)
        self.harness.settle(self.random.choose((0.0, 0.001, 0.1)))

    def have_journal(self) -> None:
        """Else the first commit has it made, and the next ones find it perhaps."""
        self.harness.store.journals[self.harness.root].want()
        self.harness.settle(0.02)

    def flush(self) -> None:
        self.harness.store.flush_soon(self.log)
        self.harness.settle(self.random.choose((0.0, 0.001, 0.005, 0.2)))

    def delete_records(self) -> None:
        life = self.life
        self.note_durable()
        offset = self.random.random_int(self.log.log_start, max(life.durable, self.log.log_start))
        life.start_max = max(life.start_max, offset)
        self.log.delete_before(offset)
        saved = self.harness.store.starts.saved(self.log)
        self.harness.settle(self.random.choose((0.0, 0.002, 0.2)))
        if saved.done and saved.error is None:
            life.start = max(life.start, offset)

    def retain(self) -> None:
        self.log.apply_retention(self.harness.now_ms())
        self.harness.settle(self.random.choose((0.0, 0.001, 0.003, 0.2)))

    def clean(self) -> None:
        self.log.producers.advance_high_watermark(self.log.durable_end)
        self.harness.store.upkeep.cleaner.look()
        self.harness.settle(self.random.choose((0.001, 0.003, 0.01, 0.3)))

    def rest(self) -> None:
        self.harness.settle(self.random.choose((0.01, 1.1, 3.0)))

    def recreate(self) -> None:
        self.harness.store.delete("tide", 0, self.life.topic_id)
        self.life = self._new_life()
        self.lost_point = None if self.lost_point is None else 0
        self.log = self._open()

    def truncate(self) -> None:
        """As a follower does, at the beginning of a batch."""
        life, log = self.life, self.log
        self.note_durable()
        bases = [log.log_end]
        for number, segment in enumerate(log.segments):
            log.segments.look(segment, number)
            bases += [header.base_offset for header in iterate(log.segments.file_of(segment).read(0, segment.size))]
        least = max(life.start_max, life.durable if life.compacted else 0)  # what may be compacted is committed
        offset = self.random.choose([base for base in bases if base >= least] or [log.log_end])
        life.durable = min(life.durable, offset)
        life.ghosts = dict(life.values)
        if self.lost_point is not None:
            self.lost_point = min(self.lost_point, offset)
        if self.random.chance(0.5):
            self.disk.left = self.random.random_int(0, 12)
        log.truncate_to(offset)
        life.ghosts = {}
        self._forget_from(offset)

    def switch(self) -> None:
        """The topic's durability changes."""
        self.faults["switch between fsync and os"] += 1
        for name in ("flush_messages", "flush_ms"):
            self.life.settings.pop(name, None)
        self.life.settings |= self.random.weighted(DURABILITY)
        self.log.configure(self.harness.topic(self.life.settings))

    def trouble(self) -> None:
        """Soon a sync fails, or the disk is full."""
        self.troubled = True
        self.faults["failed syncs or a full disk"] += 1
        if self.random.chance(0.5):
            self.disk.failing_syncs = self.random.random_int(1, 3)
            self.disk.failed_sync_keeps_cache = self.random.chance(0.5)
        else:
            self.disk.capacity = self.disk.used_bytes() + self.random.random_int(0, 2000)

    def no_trouble(self) -> None:
        self.troubled = False
        self.disk.failing_syncs, self.disk.capacity = 0, None

    def stop(self) -> None:
        if self.troubled:
            self.crash()
            return
        self.stops += 1
        lean = bool(self.stops % 2)  # as if the log were one of many
        self.faults["stop of one of many" if lean else "stop"] += 1
        with patch.object(clean_stop, "STOP_SAVED_MAX", 0 if lean else 1):
            self.harness.stop()
        self.life.durable = max(self.life.durable, max(self.life.values, default=-1) + 1)
        self.maybe_damage(power=False)
        self.harness.start()
        self.look(all_of_it=True)

    def crash(self, *, whole: bool = True) -> None:
        """`whole`: if the page cache stays, so does all that was written."""
        self.disk.left = -1
        whole = whole and not self.troubled
        self.no_trouble()
        self.note_durable()
        power = self.random.chance(0.6)
        self.harness.loop.kill()
        if power:
            self.faults["power loss"] += 1
            self.disk.crash()
        else:
            self.faults["kill"] += 1
        self.maybe_damage(power=power)
        self.harness.start()
        if self.random.chance(0.15):
            self.disk.left = self.random.random_int(0, 40)
            try:
                self._open()
            except Cut:
                self.faults["death in a start"] += 1
                self.crash(whole=whole and not power)
                return
            self.disk.left = -1
        self.look(all_of_it=whole and not power)

    def maybe_damage(self, *, power: bool) -> None:
        """One of the small files is lost or damaged while nobody runs."""
        if self.random.chance(0.6):
            return
        root, folder = self.harness.root, f"{self.harness.root}/tide-0"
        names = self.disk.list_folder(folder) if self.disk.exists(folder) else []
        first = min((name for name in names if name.endswith(".log")), default="")
        paths = [f"{root}/{name}" for name in self.disk.list_folder(root) if name.endswith("-checkpoint")]
        if power and self.life.compacted:  # a hole may be compaction's then, or not
            paths = [
                path for path in paths if not path.endswith(("recovery-point-offset-checkpoint", "fallen-checkpoint"))
            ]
        suffixes = [OFFSET_INDEX, TIME_INDEX, "leader-epoch-checkpoint", "cleanshutdown"]
        if first.startswith("0" * 20):  # else a snapshot is all that is left of what went
            suffixes.append(SNAPSHOT)
        paths += [f"{folder}/{name}" for name in names if name.endswith(tuple(suffixes))]
        if not paths:
            return
        path, how = self.random.choose(paths), self.random.choose(DAMAGE)
        if path.endswith("fallen-checkpoint") and how == "missing":  # as it mostly is: nobody can tell
            return
        if path.endswith(("recovery-point-offset-checkpoint", "fallen-checkpoint")) and self.lost_point is None:
            self.lost_point = self.saved_recovery()
        self.disk.damage(path, how)
        self.life.snapshot_damaged |= path.endswith(SNAPSHOT)
        name = path.rpartition("/")[2]
        self.faults[f"{'*' + name[20:] if name[0] == '0' else name} {how}"] += 1
        segments = [f"{folder}/{name}" for name in names if name.endswith(".log")]
        told = self.life.durable > 0 and not self.life.compacted  # a folder without a durable record is put aside
        if path.endswith("recovery-point-offset-checkpoint") and len(segments) > 2 and told:
            self._lose_segment(segments)
        if path.endswith(("log-start-offset-checkpoint", "fallen-checkpoint")):
            self.life.start = 0  # what was deleted may be there again

    def _lose_segment(self, segments: list[str]) -> None:
        """One in the middle, the recovery points lost with it: the log is offline until it is back, the others stay."""
        self.faults["a segment missing"] += 1
        path = self.random.choose(segments[1:-1])
        data = self.disk.read_whole(path)
        if not data:
            return
        self.disk.damage(path, "missing")
        self.harness.start()
        assert "the recovery point is not known" in (self._open().offline or ""), f"{path} is missing"
        assert all(self.disk.exists(other) for other in segments if other != path)
        self.harness.loop.kill()
        self.disk.put(path, data)

    # -- what must hold

    def note_durable(self) -> None:
        self.life.durable = max(self.life.durable, min(self.log.durable_end, self.log.ends.stable_end))
        if self.life.retained:
            self.life.start_max = max(self.life.start_max, self.log.durable_end)
        if self.saved(RECOVERY_POINT).get(("tide", 0), -1) >= 0:
            self.lost_point = None

    def saved(self, name: str) -> dict[tuple[str, int], int]:
        """What one of the data folder's checkpoint files holds; nothing where it is damaged."""
        try:
            return checkpoints.read_offsets(self.disk, f"{self.harness.root}/{name}")
        except CheckpointError:
            return {}

    def saved_recovery(self) -> int:
        """The recovery point that a start after a crash would find."""
        point = self.saved(RECOVERY_POINT).get(("tide", 0), 0)
        return min(point, self.saved(FALLEN).get(("tide", 0), point))

    def look(self, *, all_of_it: bool) -> None:
        life = self.life
        log = self.log = self._open()
        if self.lost_point is not None and "the recovery point is not known" in (log.offline or ""):
            self.faults["offline until the recovery point was restored"] += 1
            self.harness.loop.kill()
            path = f"{self.harness.root}/recovery-point-offset-checkpoint"
            # 0 has all of it read, and cut at the first bad batch; a compacted log needs what it was.
            point = min(self.lost_point, life.durable) if life.compacted else 0
            self.disk.put(path, f"0\n1\ntide 0 {point}\n".encode())
            self.harness.start()
            log = self.log = self._open()
        assert log.offline is None, log.offline
        log.check_invariants()
        assert log.log_end >= life.durable, f"{log} lost what was durable up to {life.durable}"
        assert life.start <= log.log_start <= life.start_max, f"{log} starts between {life.start} and {life.start_max}?"
        found, committed = self._read()
        for offset, value in found.items():
            if life.ghosts.get(offset) == value:
                life.values[offset] = value
            assert life.values[offset] == value, f"{log}: offset {offset} is {value!r}, not {life.values[offset]!r}"
        if not life.compacted:
            wanted = {offset for offset in life.values if log.log_start <= offset < log.log_end}
            assert wanted == found.keys(), f"{log} lacks {sorted(wanted - found.keys())}"
            if all_of_it:
                assert log.log_end > max(life.values, default=-1), f"{log} lost the end of {max(life.values)}"
        began_before = self._first_batch(log.producers.first_unstable) is None  # retention or compaction took it
        life.ghosts = {}
        shown = committed if began_before else self._committed()
        assert committed == shown, f"{log}: {sorted(committed ^ shown)} of {sorted(found)} are aborted, or not"
        self._forget_from(log.log_end)
        self._compare_producers()
        self._compare_indexes()
        if log.segments and any(log.segments.look(segment, number) for number, segment in enumerate(log.segments)):
            assert log.epochs.latest == EPOCH, f"{log}: {log.epochs.entries()}"

    def _compare_indexes(self) -> None:
        """Each index entry tells what the segment has, and searches by time find what a look at all records finds."""
        log = self.log
        stamps: list[tuple[int, int]] = []
        for number, segment in enumerate(log.segments):
            log.segments.look(segment, number)
            data = log.segments.file_of(segment).read(0, segment.size)
            found = list(iterate(data))
            for header in found:
                stamps += [(record.offset, record.timestamp) for record in records(data, header)]
            positions = {header.pos: header.last_offset for header in found}
            newest, rising = -1, dict[int, int]()
            for header in found:
                if header.max_timestamp > newest:
                    newest = rising[header.last_offset] = header.max_timestamp
            offsets, times = self._entries(segment)
            assert all(positions.get(position) == offset for offset, position in offsets), f"{segment.stem}: {offsets}"
            assert all(rising.get(offset) == stamp for stamp, offset in times), f"{segment.stem}: {times} of {rising}"
            if number + 1 < len(log.segments):
                assert (times[-1][0] if times else -1) == newest, f"{segment.stem}: {times} ends before {newest}"
        for _ in range(4):
            wanted = self.random.choose(stamps or [(0, 0)])[1] + self.random.choose((-1, 0, 1))
            answer = log.find_by_time(wanted, log.log_end)
            first = next((at for at, stamp in stamps if stamp >= wanted and at >= log.log_start), None)
            assert (answer and answer[1]) == first, f"{log}: {answer} is as new as {wanted}, and {first} is"

    def _entries(self, segment: Segment) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(offset, position) and (timestamp, offset) of the segment's index entries."""
        base, offsets, times = segment.base, segment.offsets, segment.times
        if offsets is not None and times is not None:
            return (
                [
                    (base + offset, position)
                    for offset, position in zip(offsets.offsets, offsets.positions, strict=True)
                ],
                [(stamp, base + offset) for stamp, offset in zip(times.stamps, times.offsets, strict=True)],
            )
        return self.log.segments.sealed(segment).entries()

    def _read(self) -> tuple[dict[int, bytes], set[int]]:
        """All records; and the offsets of those that a reader of committed records is given."""
        log = self.log
        found: dict[int, bytes] = {}
        committed: set[int] = set()
        first_unstable = log.producers.first_unstable
        stable = log.log_end if first_unstable < 0 else first_unstable
        at = log.log_start
        skipping: set[int] = set()
        while (piece := log.read(at, self.random.choose((1, 500, 1 << 20)), log.log_end)) is not None:
            view = bytes(piece.view())
            aborted = sorted((entry.first_offset, entry.producer_id) for entry in log.aborted(at, piece))
            for header in iterate(view):
                skipping |= {producer_id for first, producer_id in aborted if first <= header.last_offset}
                aborted = [(first, producer_id) for first, producer_id in aborted if first > header.last_offset]
                hidden = header.transactional and header.producer_id in skipping
                for record in records(view, header) if not header.control else ():
                    if record.offset >= at:
                        found[record.offset] = record.value or b""
                        if record.offset < stable and not hidden:
                            committed.add(record.offset)
                if header.control:
                    skipping.discard(header.producer_id)
                at = header.next_offset
        return found, committed

    def _committed(self) -> set[int]:
        """The offsets of records that are committed and stable, as all batches of the log together tell."""
        log = self.log
        committed: set[int] = set()
        open_: dict[int, tuple[int, list[int]]] = {}
        for number, segment in enumerate(log.segments):
            log.segments.look(segment, number)
            data = log.segments.file_of(segment).read(0, segment.size)
            for header in iterate(data):
                found = list(records(data, header))
                if header.control:
                    _, ended = open_.pop(header.producer_id, (0, []))
                    if found and read_marker(found[0]).committed:
                        committed.update(ended)
                elif header.transactional:
                    _, offsets = open_.setdefault(header.producer_id, (header.base_offset, []))
                    offsets += [record.offset for record in found]
                else:
                    committed.update(record.offset for record in found)
        stable = min((first for first, _ in open_.values()), default=log.log_end)
        return {offset for offset in committed if log.log_start <= offset < stable and offset in self.life.values}

    def _first_batch(self, offset: int) -> int | None:
        """The first offset of the batch with `offset`; the log's end where none is asked for, None where it is gone."""
        if offset < 0:
            return self.log.log_end
        for segment in self.log.segments:
            for header in iterate(self.log.segments.file_of(segment).read(0, segment.size)):
                if header.base_offset <= offset <= header.last_offset:
                    return header.base_offset
        return None

    def _forget_from(self, log_end: int) -> None:
        """What was never durable is gone; producers go on behind what is there."""
        life = self.life
        life.values = {offset: value for offset, value in life.values.items() if offset < log_end}
        life.known = [known for known in life.known if known[0] <= log_end]
        for sender in life.senders:
            known = self.log.producers.get(sender.id)
            sender.sequence = 0 if known is None else known.last_sequence + 1
            sender.first = -1 if known is None else known.txn_first_offset
            sender.open = sender.first >= 0

    def _may_have_forgotten(self) -> bool:
        """Whether damage may have taken what was known of producers.

        A snapshot that was damaged may be what a log begins with by now; and without the recovery point nobody can tell
        what compaction took from what was lost.
        """
        base = self.log.segments[0].base if self.log.segments else 0
        return (self.life.snapshot_damaged and base > 0) or (self.life.compacted and self.lost_point is not None)

    def _compare_producers(self) -> None:
        """What is known of producers is what they did, and what the log itself says, where it has all of it."""
        log = self.log
        did = {producer_id: (last_sequence, first) for _, producer_id, last_sequence, first in self.life.known}
        found = {each: (known.last_sequence, known.txn_first_offset) for each, known in log.producers.items()}
        if self._may_have_forgotten():
            self.life.known = [(log.log_end, each, *known) for each, known in found.items()]
            return
        assert found == did, f"{log}: producers are {found}, and did {did}"
        if self.life.compacted or (log.segments and log.segments[0].base):
            return
        fresh = load_producers(log.segments, Snapshots(), Unsynced(), log.ends)
        for sender in self.life.senders:
            one, other = log.producers.get(sender.id), fresh.get(sender.id)
            assert (one is None) == (other is None), f"{log}: producer {sender.id} is known, or not"
            if one is not None and other is not None:
                assert (one.epoch, one.last_sequence, one.txn_first_offset) == (
                    other.epoch,
                    other.last_sequence,
                    other.txn_first_offset,
                )


WITHOUT_A_POINT = (467, 729, 1303, 1397, 1644, 1832)
"""A log that was killed before its recovery point was ever saved gets a further segment, which the power tears."""
OLDER_POINT = 1782
"""A log is made under a name whose older one's recovery point still stands, and the next stop comes before a record."""
COMES_BACK = 1626
"""The power goes right after a start put a folder aside, and again after a write to the new one, and the recovery
points are damaged, too: what was put aside came back."""


@pytest.mark.parametrize("seed", [*WITHOUT_A_POINT, OLDER_POINT, COMES_BACK, 701_701])
def test_a_history_that_once_lost_something(seed: int) -> None:
    History(seed, journal_bytes=0).go()


CUT_TO_NOTHING = 915
"""A segment is cut to nothing, the process is killed before the sync, and the power goes after the next start."""
TORN_BETWEEN = 1734
"""A time index is torn between two entries."""


@pytest.mark.parametrize("seed", [*range(60), CUT_TO_NOTHING, TORN_BETWEEN])
def test_any_history_keeps_what_was_durable(seed: int) -> None:
    History(seed).go()


def test_histories_meet_every_kind_of_fault() -> None:
    faults = Counter[str]()
    for seed in range(1000, 1060):
        History(seed, faults).go()
    met = " ".join(faults)
    for what in ("append", "create", "rename", "sync", "sync of a folder", "truncate"):
        assert f"death at {what}" in faults
    for name in ("*.index", "*.timeindex", "*.snapshot", "recovery-point-offset-checkpoint"):
        assert {f"{name} {how}" for how in DAMAGE} <= faults.keys()
    for name in ("log-start-offset", "leader-epoch", "replication-offset"):
        assert f"{name}-checkpoint" in met
    assert {
        "kill",
        "power loss",
        "stop",
        "stop of one of many",
        "death in a start",
        "switch between fsync and os",
    } <= faults.keys()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.log.test_any_history", description="Random histories.")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("end", type=int, help="the seed behind the last one")
    parser.add_argument("--break", dest="broken", choices=SAFEGUARDS, help="without this safeguard")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    counted, failed = Counter[str](), 0
    for given in range(options.first, options.end):
        try:
            with switched_off(options.broken):
                History(given, counted).go()
        except Exception as error:
            failed += 1
            print(given, type(error).__name__, str(error)[:300])
    for kind, times in sorted(counted.items()):
        print(f"{times:8} {kind}")
    print(f"{failed} histories failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
