"""Opening logs that are on disk: each by a thread, which shares nothing with the loop, a few beside each other.

A log that is being opened isn't there for anybody: whoever needs it waits. What recovery found out becomes a `Log` on
the loop, with the settings that the topic has by then.
"""

from __future__ import annotations

import errno
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from tidelog.env.promise import Promise, gather
from tidelog.log import checkpoints, recovery
from tidelog.log.bounds import OPENING_FILES_MAX, OPENING_JOB_S, OPENINGS_A_JOB, OPENINGS_TOGETHER_MAX
from tidelog.log.checkpoints import PARTITION_METADATA, CheckpointError
from tidelog.log.commit import TOO_MANY_FILES
from tidelog.log.files import OpenFiles
from tidelog.log.folder import PartitionFolder
from tidelog.log.index_files import IndexFiles
from tidelog.log.names import METADATA_TOPIC
from tidelog.log.recoveries import Cut
from tidelog.log.recovery import LogFolder, Recovered
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.topic import TopicConfig
    from tidelog.env.clock import Clock
    from tidelog.env.disk import Disk
    from tidelog.env.loop import Loop
    from tidelog.log.segment import Segment
    from tidelog.wire.topic_partition import TopicPartition


class Opening:
    """One log on its way: `run` may be called by any thread. What is around the log meanwhile is this.

    `reports` are for the operator, `leftovers` for removal (with the delay in milliseconds), also where `run` fails.
    `cut` is what recovery took off it, `seconds` how long it took.
    `begun`, on the loop: its turn has come, as that of `asker`. `deleted`: the topic was deleted meanwhile. `settled`:
    the log is in its place.
    """

    def __init__(
        self, disk: Disk, clock: Clock, expiration_ms: int, log_folder: LogFolder, topic_id: bytes, config: TopicConfig
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.producer_expiration_ms = expiration_ms
        self.files = OpenFiles(disk, OPENING_FILES_MAX)
        self.index_files = IndexFiles(disk)
        self.log_folder = log_folder
        self.topic_id = topic_id
        self.config = config
        self.reports: list[str] = []
        self.leftovers: list[tuple[str, int]] = []
        self.cut: Cut | None = None
        self.restored = 0
        self.seconds = 0.0
        self.begun = self.deleted = False
        self.asker: object = None
        self.settled: Promise[None] = Promise()

    def run(self) -> Recovered | None:
        """The log as its files have it; None where the folder is another topic's.

        Raises OSError, and BadBatch for damage below the recovery point.
        """
        began = self.clock.monotonic()
        try:
            return self._run()
        finally:
            self.seconds = self.clock.monotonic() - began

    def _run(self) -> Recovered | None:
        if belongs_to_another(self.disk, self.log_folder, self.topic_id, self.reports):
            return None
        if not self.disk.exists(self.log_folder.path):  # its name is lost, and the journal has its records
            self.disk.make_folders(self.log_folder.path)
            self.disk.sync_folder(self.log_folder.root)
        folder = PartitionFolder(*self.log_folder[:3], self.topic_id, self.config)
        return recovery.recover(self, folder, self.log_folder)

    def report(self, message: str) -> None:
        self.reports.append(message)

    def note_cut(self, place: str, offset: int, size: int, records: int = 0) -> None:
        """So much went off the end of the log, from `offset` on."""
        before = self.cut or Cut(place, offset, 0, 0)
        self.cut = Cut(place, min(before.offset, offset), before.bytes + size, before.records + records)

    def note_restored(self, records: int) -> None:
        """So many came back from the journal, behind that."""
        self.restored += records
        if self.cut is not None:
            self.cut = self.cut._replace(restored=self.restored)

    def clean_end(self, folder: PartitionFolder) -> int:
        return self.log_folder.clean_end

    def draw_jitter_ms(self, config: TopicConfig) -> int:
        return 0

    def remove_segment(self, segment: Segment, delay_ms: int = 0) -> None:
        """Its names are free at once; its files go later."""
        self.files.forget(segment)
        self.leftovers += [(path, delay_ms) for path in segment.set_aside(self.disk)]


class Openings:
    """The logs that are being opened, a few beside each other. `ended` puts a log in its place, on the loop; `drained`
    is called when nobody waits for another.

    Whoever asks for logs has their turn with all others who do: who asks for one doesn't wait for another's thousands.
    """

    def __init__(
        self,
        loop: Loop,
        ended: Callable[[Opening, Promise[Recovered | None]], Promise[None]],
        drained: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._ended = ended
        self._drained = drained
        self._known: dict[TopicPartition, Opening] = {}
        self._waiting: dict[object, deque[Opening]] = {}  # by who asked for them, in the order of their turns
        self._busy = 0
        self._stopped = False

    def get(self, key: TopicPartition) -> Opening | None:
        return self._known.get(key)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._known

    @property
    def idle(self) -> bool:
        return not self._busy

    def begin(self, opening: Opening, asker: object) -> None:
        """Open it when the turn of who asks comes, or of another who does, in the order in which each asked."""
        self._known[opening.log_folder.key] = opening
        self.ask(opening, asker)
        self._next()

    def ask(self, opening: Opening, asker: object) -> None:
        """Somebody waits for it, for the first time or too."""
        if not opening.begun:
            self._waiting.setdefault(asker, deque()).append(opening)

    def stop(self) -> None:
        """Begin no more."""
        self._stopped = True

    def _next(self) -> None:
        while self._busy < OPENINGS_TOGETHER_MAX and not self._stopped and (some := self._take()):
            self._busy += 1
            outcomes: list[Promise[Recovered | None]] = []
            self._loop.run_blocking(partial(_run, some, outcomes)).on_done(partial(self._ran, some, outcomes))

    def _take(self) -> list[Opening]:
        """Some of whose turn it is, who is the last to have another then: one, or a few of many, since to have a thread
        begin takes as long as a third of an opening."""
        while self._waiting:
            asker = next(iter(self._waiting))
            queue = self._waiting.pop(asker)
            share = max(1, min(OPENINGS_A_JOB, len(queue) // OPENINGS_TOGETHER_MAX))
            some = [opening for opening in (queue.popleft() for _ in range(share)) if not opening.begun]
            if queue:
                self._waiting[asker] = queue
            for opening in some:
                opening.begun = True
                opening.asker = asker
            if some:
                return some
        return []

    def _ran(self, some: list[Opening], outcomes: list[Promise[Recovered | None]], done: Promise[None]) -> None:
        done.result()
        for opening in reversed(some[len(outcomes) :]):
            opening.begun = False
            self._waiting.setdefault(opening.asker, deque()).appendleft(opening)
        ended = [
            self._ended(opening, outcome).then(partial(self._settled, opening))
            for opening, outcome in zip(some, outcomes, strict=False)
        ]
        gather(ended).on_done(self._next_job)

    def _settled(self, opening: Opening, done: Promise[None]) -> None:
        del self._known[opening.log_folder.key]
        if done.error is not None:
            opening.settled.fail(done.error)
        else:
            opening.settled.resolve(None)

    def _next_job(self, _: object) -> None:
        self._busy -= 1
        self._next()
        if not self._busy:
            self._drained()


def _run(some: list[Opening], outcomes: list[Promise[Recovered | None]]) -> None:
    """For a thread: `outcomes` has what came of each, or why it failed; of the first ones only, where it takes long."""
    began = some[0].clock.monotonic()
    for opening in some:
        if outcomes and opening.clock.monotonic() - began > OPENING_JOB_S:
            return
        try:
            outcomes.append(Promise[Recovered | None].resolved(opening.run()))
        except Exception as error:
            outcomes.append(Promise[Recovered | None].failed(error))


def may_pass(error: BaseException | None) -> bool:
    """Whether a log that couldn't be opened for this is worth another try: it is the process that lacks something.

    EIO isn't among these: it may be a sync's, and the next one would tell of nothing, whatever was lost.
    """
    return isinstance(error, OSError) and error.errno in (*TOO_MANY_FILES, errno.ENOMEM, errno.EAGAIN, errno.EINTR)


def belongs_to_another(disk: Disk, log_folder: LogFolder, topic_id: bytes, reports: list[str]) -> bool:
    """Whether the folder names another topic than the one with this id. The journal tells where the folder doesn't."""
    path = f"{log_folder.path}/{PARTITION_METADATA}"
    journaled = {entry.topic_id for entry in log_folder.journal}
    if not disk.exists(log_folder.path):
        return topic_id not in journaled
    try:
        found = checkpoints.read_partition_metadata(disk, path)
        if found is None and journaled:
            return topic_id not in journaled
    except CheckpointError as error:
        if topic_id in journaled:
            reports.append(f"{error}; the journal says that it is the topic's own")
            return False
        # A folder's first sync is that of this file too. What was never made durable may be an older topic's, if
        # the power took its deletion back.
        if log_folder.topic != METADATA_TOPIC and not log_folder.clean and not log_folder.durable:
            reports.append(f"{error}, and nothing in its folder was made durable")
            return topic_id != ZERO_UUID
        reports.append(f"{error}; taking the folder for the topic's own")
        return False
    return found is not None and topic_id != ZERO_UUID and found != topic_id
