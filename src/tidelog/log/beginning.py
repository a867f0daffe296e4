"""The folder and the first segment of a new log: made off the loop, since making files takes long.

Nothing is on disk of a log before its first write. Making its folder, saying in it whose it is, and making the first
segment takes the better part of a millisecond. For a few logs the write does that itself. Where many begin at once, as
when a client writes to thousands of new partitions, a thread does, and the write waits for it; and so it does where
something of a deleted log of the same name is still under way. What goes wrong is told by the write, which tries again.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from tidelog.env.promise import Promise
from tidelog.log.bounds import BEGINNING_JOBS_MAX, BEGUN_AT_ONCE_MAX, BEGUN_AT_ONCE_PER_S, LOGS_A_JOB
from tidelog.log.files import OpenFiles
from tidelog.log.folder import PartitionFolder
from tidelog.log.index_files import IndexFiles
from tidelog.log.segments import Segments

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.topic import TopicConfig
    from tidelog.env import Environment
    from tidelog.env.clock import Clock
    from tidelog.env.disk import Disk
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment
    from tidelog.wire.topic_partition import TopicPartition


class Beginning:
    """One log that is begun: `run` may be called by any thread. What is around the log meanwhile is this."""

    def __init__(self, disk: Disk, clock: Clock, log: Log) -> None:
        self.disk = disk
        self.clock = clock
        self.producer_expiration_ms = 0  # nobody has written yet
        self.files = OpenFiles(disk, 1)
        self.index_files = IndexFiles(disk)
        self.log = log
        self.settled: Promise[None] = Promise()
        self.segment: Segment | None = None
        self._folder = PartitionFolder(log.root, log.topic, log.partition, log.topic_id, log.config)
        self._base = log.log_end

    def run(self) -> None:
        """`segment` is None where something failed."""
        folder = self._folder
        try:
            new = self.disk.make_folders(folder.folder)
            folder.name_topic(self.disk, new=new)
            self.segment = Segments(self, folder).begin(self._base, self.clock.now_ms(), new=new)
        except OSError:
            return

    def report(self, message: str) -> None:
        """There is nothing to tell of a new log."""

    def clean_end(self, folder: PartitionFolder) -> int:
        return 0

    def draw_jitter_ms(self, config: TopicConfig) -> int:
        return 0


class Beginnings:
    """The logs of a store that are being begun.

    `free_name` gives what has to be waited for before a log may take its name; `ended` is told of each. `at_once_max`
    is how many may be begun on the loop.
    """

    def __init__(
        self,
        env: Environment,
        free_name: Callable[[Log], Promise[None] | None],
        ended: Callable[[Beginning], None],
    ) -> None:
        self._clock = env.clock
        self._disk = env.disk
        self._loop = env.loop
        self._free_name = free_name
        self._ended = ended
        self._known: dict[TopicPartition, Beginning] = {}
        self._waiting: deque[Beginning] = deque()
        self._jobs = 0
        self._stopped = False
        self.at_once_max = BEGUN_AT_ONCE_MAX
        self._at_once = float(BEGUN_AT_ONCE_MAX)
        self._counted = env.clock.monotonic()

    def get(self, key: TopicPartition) -> Beginning | None:
        return self._known.get(key)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._known

    def __len__(self) -> int:
        """Those that are being begun, or wait for their name or their turn."""
        return len(self._known)

    @property
    def idle(self) -> bool:
        return not self._jobs

    def begin(self, log: Log) -> Promise[None] | None:
        """Begin the log when its name is free and its turn comes; settled when it was tried. None: write, and it is."""
        key = log.topic, log.partition
        under_way = self._known.get(key)
        if under_way is not None:
            return under_way.settled
        freed = self._free_name(log)
        if freed is None and self._may_at_once():
            return None
        beginning = self._known[key] = Beginning(self._disk, self._clock, log)
        if freed is None:
            self._enqueue(beginning)
        else:
            freed.on_done(lambda done: self._settle(beginning) if done.error is not None else self._enqueue(beginning))
        return beginning.settled

    def _may_at_once(self) -> bool:
        now = self._clock.monotonic()
        self._at_once = min(self.at_once_max, self._at_once + (now - self._counted) * BEGUN_AT_ONCE_PER_S)
        self._counted = now
        if self._waiting or self._at_once < 1:
            return False
        self._at_once -= 1
        return True

    def stop(self) -> None:
        """Begin no more."""
        self._stopped = True

    def _enqueue(self, beginning: Beginning) -> None:
        self._waiting.append(beginning)
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        while self._waiting and self._jobs < BEGINNING_JOBS_MAX and not self._stopped:
            job = [self._waiting.popleft() for _ in range(min(LOGS_A_JOB, len(self._waiting)))]
            self._jobs += 1
            self._loop.run_blocking(partial(_run, job)).on_done(partial(self._job_ended, job))

    def _job_ended(self, job: list[Beginning], done: Promise[None]) -> None:
        self._jobs -= 1
        self._next()
        for beginning in job:
            self._settle(beginning)
        done.result()

    def _settle(self, beginning: Beginning) -> None:
        log = beginning.log
        del self._known[log.topic, log.partition]
        self._ended(beginning)
        beginning.settled.resolve(None)


def _run(job: list[Beginning]) -> None:
    for beginning in job:
        beginning.run()
