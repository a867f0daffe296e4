"""One cleaning: note where each key comes last (keys.py), then write the segments anew, a group of them into one.

The keys of the dirty part are held in memory, within `map_bytes`; where they don't fit, only as much of the log is
cleaned as they reach, and the next cleaning goes on there. What is clean already is gone through too, since newer
records supersede what is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.aborted import AbortedIndexError, read_entries
from tidelog.log.bounds import OFFSET_SPAN_MAX
from tidelog.log.compaction.keys import Keys
from tidelog.log.compaction.rewriting import Rewriting, control_type
from tidelog.log.compaction.source import whole_batches
from tidelog.log.compaction.target import Target
from tidelog.log.compaction.task import Done, Failed
from tidelog.log.compaction.transactions import Transactions
from tidelog.log.names import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, segment_stem
from tidelog.log.producer_snapshot import decode_snapshot
from tidelog.log.scan import BadBatch
from tidelog.wire.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.env.disk import Disk
    from tidelog.log.aborted import Aborted
    from tidelog.log.compaction.source import Found
    from tidelog.log.compaction.task import Report, Task

GROUP_SEGMENTS_MAX = 64
"""The loop renames the files of a whole group at once."""


def run(disk: Disk, task: Task, took: Callable[[int], None]) -> Iterator[Report]:
    """Clean, and report each segment that is written, then the end. `took` is told of bytes read and written."""
    try:
        yield from Cleaning(disk, task, took).run()
    except BadBatch as error:
        yield Failed(reason=str(error), damaged=True)
    except AbortedIndexError as error:
        yield Failed(reason=str(error), damaged=True)
    except OSError as error:
        yield Failed(reason=str(error), damaged=False)


class Cleaning:
    """The state of one cleaning."""

    def __init__(self, disk: Disk, task: Task, took: Callable[[int], None]) -> None:
        self._disk = disk
        self._task = task
        self._bytes = 0
        self._read = 0
        self._told = took
        self._aborted = self._find_aborted()

    def run(self) -> Iterator[Report]:
        task = self._task
        keys = self._note_keys()
        producers = dict(decode_snapshot(task.producers, "the producers")) if task.producers else {}
        rewriting = Rewriting(task, keys, Transactions(self._aborted), producers)
        written = 0
        cleaned = [(base, size) for base, size in task.segments if base <= keys.latest]
        for group in self.groups(cleaned):
            target = Target(self._disk, task, [base for base, _ in group], self._told)
            for base, size in group:
                for found in self._batches(base, size):
                    rewriting.rewrite(found, target)
            yield target.finish()
            written += target.size
        yield Done(
            clean_end=keys.latest + 1,
            bytes_read=self._read,
            bytes_written=written,
            records_read=rewriting.records_read,
            records_written=rewriting.records_written,
        )

    def _note_keys(self) -> Keys:
        """The keys of the dirty part, or of as much of it as fits; one batch at least."""
        task = self._task
        keys = Keys(task.log_start)
        transactions = Transactions([entry for entry in self._aborted if entry.last_offset >= task.first_dirty])
        bases = [base for base, _ in task.segments]
        first = max((number for number, base in enumerate(bases) if base <= task.first_dirty), default=0)
        for base, size in task.segments[first:]:
            for found in self._batches(base, size):
                fields = found.fields
                attributes, last_offset, count = fields.attributes, fields.last_offset, fields.record_count
                if last_offset < task.first_dirty:
                    continue
                if attributes & CONTROL_FLAG:
                    transactions.control(fields.producer_id, last_offset, control_type(found) if count else None)
                elif (
                    not (attributes & TRANSACTIONAL_FLAG and transactions.data(fields.producer_id, last_offset))
                    and count
                ):
                    keys.note(found)
                    if keys.memory_bytes >= task.map_bytes:
                        keys.latest = last_offset
                        return keys
        keys.latest = task.end - 1
        return keys

    # -- the files

    def _batches(self, base: int, size: int) -> Iterator[Found]:
        path = self._stem(base) + LOG
        task = self._task
        file = self._disk.open(path)
        return whole_batches(file, path, size, task.buffer_bytes, task.inflated_bytes_max, self._took)

    def _took(self, count: int) -> None:
        self._read += count
        self._told(count)

    def _stem(self, base: int) -> str:
        return f"{self._task.folder}/{segment_stem(base)}"

    def _find_aborted(self) -> list[Aborted]:
        """The aborted transactions that began before the end."""
        task = self._task
        found: list[Aborted] = []
        for base in [*(base for base, _ in task.segments), *task.later]:
            entries = read_entries(self._disk, self._stem(base) + TXN_INDEX)
            found += [entry for entry in entries if entry.first_offset < task.end]
        return found

    def groups(self, segments: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        """Segments that become one together: within the bounds of a segment's size, its indexes and its offsets."""
        task = self._task
        ends = [base for base, _ in segments[1:]] + [task.end]
        groups: list[list[tuple[int, int]]] = []
        total = entries = times = 0
        for (base, size), end in zip(segments, ends, strict=True):
            own = self._size_of(self._stem(base) + OFFSET_INDEX), self._size_of(self._stem(base) + TIME_INDEX)
            if (
                groups
                and len(groups[-1]) < GROUP_SEGMENTS_MAX
                and total + size <= task.segment_bytes
                and entries + own[0] <= task.index_bytes
                and times + own[1] <= task.index_bytes
                and (not size or end - 1 - groups[-1][0][0] <= OFFSET_SPAN_MAX)
            ):
                groups[-1].append((base, size))
                total, entries, times = total + size, entries + own[0], times + own[1]
            else:
                groups.append([(base, size)])
                total, (entries, times) = size, own
        return groups

    def _size_of(self, path: str) -> int:
        return self._disk.size(path) if self._disk.exists(path) else 0
