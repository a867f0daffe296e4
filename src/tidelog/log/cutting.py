"""Cutting logs, many in one go: the checkpoints that say so first are written once for all, and syncs are off the loop.

A log is cut in a turn of the loop, between two waits:

1. What only the journal has of it becomes durable in its segments: what is left of a batch must not depend on a block
   that is void (off the loop).
2. In one turn, some at a time: its recovery point falls, and what the journal has of it is void, durably, before
   anything goes (one write of each file, whatever their number); then segments go, and the last one is cut.
3. The cut is durable before anything is written behind it (off the loop). Until then the log takes no batch: a power
   loss could leave some of the old batches behind some of the new ones, and both sound.

300 logs, one by one and each with its syncs on the loop, took 2.1-3.0 s in which nothing else was done (two syncs
each); in one go they take 0.1-0.9 s beside it, in turns of 10-40 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from tidelog.env.promise import Promise, gather
from tidelog.env.slices import Steps, settled
from tidelog.log.commit import Syncing, mark_of
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from tidelog.env import Environment
    from tidelog.env.disk import File
    from tidelog.log.checkpoint_files import CheckpointFiles
    from tidelog.log.commit import Mark
    from tidelog.log.journals import Journals
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment

T = TypeVar("T")

LANES = 4
"""Threads that sync what is cut: group commits must find others."""
LOGS_A_LANE = 16
CUT_A_STEP = 16
"""Logs that are cut in one turn: some 0.3 ms each."""


class Cut(NamedTuple):
    """Of one log, at `offset`: in the segment of this number, from `position` on. What is before ends at `rest_end`."""

    log: Log
    offset: int
    rest_end: int
    number: int
    segment: Segment
    position: int


class Wanted(Protocol):
    """A log that is to be cut."""

    @property
    def log(self) -> Log: ...

    def offset(self) -> int | None:
        """Where, as things are now; None: no more."""
        ...


class Cuts:
    """Of all logs. `points` are the checkpoints, by data folder."""

    def __init__(self, env: Environment, points: dict[str, CheckpointFiles], journals: Journals) -> None:
        self._env = env
        self._points = points
        self._journals = journals
        self._falls: dict[str, dict[tuple[str, int], int]] = {}
        self._voids: dict[Log, None] = {}
        self._under_way = 0

    @property
    def idle(self) -> bool:
        return not self._under_way

    # -- what has to be durable before a log is cut

    def note(self, log: Log, offset: int, rest_end: int, *, fell: bool) -> None:
        """It is about to be cut. `fell`: its recovery point did. So does a start that was saved, or else the log would
        end before it begins."""
        key, points = log.key, self._points[log.root]
        self._voids[log] = None
        if fell or points.recovery.offsets.get(key, 0) > rest_end:
            self._falls.setdefault(log.root, {})[key] = log.recovery_point
        elif points.starts.offsets.get(key, 0) > offset:
            self._falls.setdefault(log.root, {})[key] = offset

    def save(self) -> None:
        """Durably, here and now, what was noted. Raises OSError."""
        self._journals.void(list(self._voids))
        self._voids.clear()
        for root, offsets in list(self._falls.items()):
            self._points[root].fall(offsets)
            del self._falls[root]

    # -- many

    def cut(self, wanted: Sequence[Wanted]) -> Steps[None]:
        """Cut them; one that fails is offline then."""
        self._under_way += 1
        try:
            yield from self._settle([one.log for one in wanted])
            files: list[tuple[Log, File]] = []
            for first in range(0, len(wanted), CUT_A_STEP):
                files += self._cut(wanted[first : first + CUT_A_STEP])
                yield
            yield from self._sync(files)
        finally:
            self._under_way -= 1

    def _settle(self, logs: list[Log]) -> Steps[None]:
        marks = [mark_of(log) for log in dict.fromkeys(logs) if log.offline is None and self._journals.has_rest(log)]
        lanes = _lanes(marks)
        jobs = [Syncing(self._env.disk, lane, whole=False) for lane in lanes]
        yield from self._run([job.run for job in jobs])
        for job in jobs:
            for mark in job.marks:
                _take_note(mark, job.error_of(mark))

    def _cut(self, wanted: Sequence[Wanted]) -> list[tuple[Log, File]]:
        begun: list[Cut] = []
        for one in wanted:
            offset = one.offset()
            if offset is not None and one.log.offline is None:
                try:
                    cut = one.log.begin_cut(offset)
                except KafkaError:  # it is offline, and said why
                    continue
                if cut is not None:
                    begun.append(cut)
        failed: OSError | None = None
        try:
            self.save()
        except OSError as error:
            failed = error
        files: list[tuple[Log, File]] = []
        for cut in begun:
            if failed is not None:
                cut.log.go_offline(f"changing {cut.log.folder} failed: {failed}")
                continue
            try:
                files.append((cut.log, cut.log.end_cut(cut)))
            except KafkaError:
                continue
            cut.log.close_to_batches()
        return files

    def _sync(self, files: list[tuple[Log, File]]) -> Steps[None]:
        errors: dict[Log, OSError] = {}
        yield from self._run([partial(_sync_files, lane, errors) for lane in _lanes(files)])
        for log, _ in files:
            if log in errors and not log.deleted:
                log.go_offline(f"a sync of {log.folder} failed: {errors[log]}")
            log.open_to_batches()

    def _run(self, jobs: Sequence[Callable[[], None]]) -> Steps[None]:
        for first in range(0, len(jobs), LANES):
            running: list[Promise[None]] = [self._env.loop.run_blocking(job) for job in jobs[first : first + LANES]]
            for promise in (yield from settled(gather(running))):
                promise.result()


def _lanes(some: Sequence[T]) -> list[list[T]]:
    return [list(some[first : first + LOGS_A_LANE]) for first in range(0, len(some), LOGS_A_LANE)]


def _sync_files(files: list[tuple[Log, File]], errors: dict[Log, OSError]) -> None:
    """For off the loop: it touches nothing but the files."""
    for log, file in files:
        try:
            file.sync()
        except OSError as error:
            errors[log] = error


def _take_note(mark: Mark, error: OSError | None) -> None:
    log = mark.log
    if log.deleted or log.offline is not None:
        return
    if error is not None:
        log.go_offline(f"a sync of {log.folder} failed: {error}")
    else:
        log.synced(mark)
