"""Any history of writes, flushes, deletions, cleanings and crashes: what was durable is there, and nothing else is.

The simulator does this to a whole broker; here only the store lives, so that thousands of histories can be tried:
`python -m tests.log.test_any_history 0 5000`.
"""

import logging
import sys
from dataclasses import dataclass, field

import pytest
from tests.batches import Producer
from tests.log.keyed import COMPACT, end, put
from tests.log.shore import Shore

from tidelog.log.knowledge import load_producers
from tidelog.log.log import Log
from tidelog.sim.disk import SimDisk
from tidelog.sim.random import SimRandom
from tidelog.wire.batch import iterate, records
from tidelog.wire.errors import KafkaError
from tidelog.wire.markers import read_marker

STEPS = 60
PRODUCERS = 4


class Cut(BaseException):
    """The process is gone, in the middle of what it did."""


class DyingDisk(SimDisk):
    """Ends the process before one of its changes: after `left` more of them."""

    left = -1

    def step(self) -> None:
        if self.left >= 0:
            self.left -= 1
            if self.left < 0:
                raise Cut

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def sync_folder(self, path: str) -> None:
        self.step()
        super().sync_folder(path)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)


@dataclass(slots=True)
class Sender:
    """An idempotent producer, of transactions perhaps."""

    id: int
    transactional: bool
    epoch: int = 0
    sequence: int = 0
    open: bool = False
    """It has a transaction open."""


@dataclass(slots=True)
class Life:
    """One topic: what stands where, and what of it was durable."""

    topic_id: bytes
    settings: dict[str, str]
    values: dict[int, bytes] = field(default_factory=dict[int, bytes])
    ghosts: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """What is being cut off: until that is done it may come back."""
    durable: int = 0
    start: int = 0
    start_max: int = 0
    senders: list[Sender] = field(default_factory=list[Sender])

    @property
    def compacted(self) -> bool:
        return "cleanup_policy" in self.settings


class History:
    def __init__(self, seed: int) -> None:
        self.random = SimRandom(f"history {seed}")
        self.disk = DyingDisk(self.random.fork("disk"))
        self.shore = Shore(self.disk, log_flush_offset_checkpoint_interval_ms="1000")
        self.lives = 0
        self.troubled = False
        self.life = self._new_life()
        self.log = self._open()
        self.number = 0

    def _new_life(self) -> Life:
        self.lives += 1
        settings = {
            "internal_segment_bytes": str(self.random.choose((600, 2000, 100_000))),
            "index_interval_bytes": str(self.random.choose((0, 200, 4096))),
            "file_delete_delay_ms": self.random.choose(("0", "500", "60000")),
        }
        if self.random.chance(0.3):
            settings |= COMPACT
        senders = [Sender(10 * self.lives + n, n % 2 == 0) for n in range(PRODUCERS)]
        return Life(self.lives.to_bytes(16), settings, senders=senders)

    def _open(self) -> Log:
        return self.shore.log(topic_id=self.life.topic_id, **self.life.settings)

    def go(self) -> None:
        for _ in range(STEPS):
            step = self.random.weighted(
                (
                    (self.write, 30),
                    (self.commit, 8),
                    (self.end, 8),
                    (self.flush, 3),
                    (self.delete_records, 2),
                    (self.retain, 1),
                    (self.clean, 3),
                    (self.recreate, 1),
                    (self.rest, 2),
                    (self.crash, 4),
                    (self.stop, 1),
                    (self.trouble, 1),
                    (self.truncate, 1),
                )
            )
            if self.random.chance(0.05):
                self.disk.left = self.random.random_int(0, 12)
            try:
                step()
            except Cut:
                self.crash()
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
        now_ms = self.shore.now_ms()
        base = put(self.log, *pairs, now_ms=now_ms, producer=producer, transactional=sender.transactional)
        sender.sequence += count
        for offset, (_, value) in enumerate(pairs, base):
            life.values[offset] = value or b""
        sender.open = sender.transactional

    def end(self) -> None:
        sender = self.random.choose(self.life.senders)
        if not sender.open:
            return
        commit = self.random.chance(0.5)
        marker = end(self.log, Producer(sender.id, sender.epoch, 0), commit=commit, now_ms=self.shore.now_ms())
        self.life.values.pop(marker, None)
        sender.open = False

    def commit(self) -> None:
        self.shore.store.commit.request(self.log)
        self.shore.settle(self.random.choose((0.0, 0.001, 0.1)))

    def flush(self) -> None:
        self.shore.store.flush_soon(self.log)
        self.shore.settle(self.random.choose((0.0, 0.001, 0.005, 0.2)))

    def delete_records(self) -> None:
        life = self.life
        self.note_durable()
        offset = self.random.random_int(self.log.log_start, max(life.durable, self.log.log_start))
        life.start_max = max(life.start_max, offset)
        self.log.delete_before(offset)
        saved = self.shore.store.starts_saved(self.log)
        self.shore.settle(self.random.choose((0.0, 0.002, 0.2)))
        if saved.done and saved.error is None:
            life.start = max(life.start, offset)

    def retain(self) -> None:
        self.log.apply_retention(self.shore.now_ms())

    def clean(self) -> None:
        self.log.producers.advance_high_watermark(self.log.durable_end)
        self.shore.store.upkeep.cleaner.look()
        self.shore.settle(self.random.choose((0.001, 0.003, 0.01, 0.3)))

    def rest(self) -> None:
        self.shore.settle(self.random.choose((0.01, 1.1, 3.0)))

    def recreate(self) -> None:
        self.shore.store.delete("tide", 0, self.life.topic_id)
        self.life = self._new_life()
        self.log = self._open()

    def truncate(self) -> None:
        """As a follower does, at the beginning of a batch."""
        life, log = self.life, self.log
        self.note_durable()
        bases = [log.log_end]
        for number, segment in enumerate(log.segments):
            log.look(segment, number)
            bases += [header.base_offset for header in iterate(log.file_of(segment).read(0, segment.size))]
        least = max(life.start_max, life.durable if life.compacted else 0)  # what may be compacted is committed
        offset = self.random.choose([base for base in bases if base >= least] or [log.log_end])
        life.durable = min(life.durable, offset)
        life.ghosts = dict(life.values)
        log.truncate_to(offset)
        life.ghosts = {}
        self._forget_from(offset)

    def trouble(self) -> None:
        """Soon a sync fails, or the disk is full."""
        self.troubled = True
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
        self.shore.restart()
        self.life.durable = max(self.life.durable, max(self.life.values, default=-1) + 1)
        self.look(all_of_it=True)

    def crash(self) -> None:
        self.disk.left = -1
        self.no_trouble()
        self.note_durable()
        power = self.random.chance(0.6)
        if power:
            self.shore.power_loss()
        else:
            self.shore.kill()
        if self.random.chance(0.15):
            self.disk.left = self.random.random_int(0, 15)
            try:
                self._open()
            except Cut:
                self.disk.left = -1
                self.crash()
                return
            self.disk.left = -1
        self.look(all_of_it=False)

    # -- what must hold

    def note_durable(self) -> None:
        self.life.durable = max(self.life.durable, self.log.durable_end)

    def look(self, *, all_of_it: bool) -> None:
        life = self.life
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
        began_before = log.segments and 0 <= log.producers.first_unstable < log.segments[0].base
        life.ghosts = {}
        shown = committed if began_before else self._committed()
        assert committed == shown, f"{log}: {sorted(committed ^ shown)} of {sorted(found)} are aborted, or not"
        self._forget_from(log.log_end)
        self._compare_producers()

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
            log.look(segment, number)
            data = log.file_of(segment).read(0, segment.size)
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

    def _forget_from(self, log_end: int) -> None:
        """What was never durable is gone; producers go on behind what is there."""
        life = self.life
        life.values = {offset: value for offset, value in life.values.items() if offset < log_end}
        for sender in life.senders:
            known = self.log.producers.get(sender.id)
            sender.sequence = 0 if known is None else known.last_sequence + 1
            sender.open = known is not None and known.txn_first_offset >= 0

    def _compare_producers(self) -> None:
        """What is known of producers is what the log itself says."""
        log = self.log
        if self.life.compacted or (log.segments and log.segments[0].base):
            return
        snapshots, log._snapshots = log._snapshots, ()
        fresh = load_producers(log)
        log._snapshots = snapshots
        for sender in self.life.senders:
            one, other = log.producers.get(sender.id), fresh.get(sender.id)
            assert (one is None) == (other is None), f"{log}: producer {sender.id} is known, or not"
            if one is not None and other is not None:
                assert (one.epoch, one.last_sequence, one.txn_first_offset) == (
                    other.epoch,
                    other.last_sequence,
                    other.txn_first_offset,
                )


@pytest.mark.parametrize("seed", [*range(40), 701_701])
def test_any_history_keeps_what_was_durable(seed: int) -> None:
    History(seed).go()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for given in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            History(given).go()
        except Exception as error:
            print(given, type(error).__name__, str(error)[:300])
