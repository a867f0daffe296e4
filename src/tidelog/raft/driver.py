"""The shell around the quorum: carries out what it decides on the log, the `quorum-state` file, timers, checkpoints.

The way of a decision passes here twice: down, as batches that are appended and made durable; and up again, as the high
watermark that tells the machine what is committed.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from tidelog.env import Environment
from tidelog.env.loop import Timer
from tidelog.env.network import Buffer
from tidelog.env.promise import Promise
from tidelog.env.slices import whole
from tidelog.raft.checkpointer import Checkpointer, SnapshotSource
from tidelog.raft.control import (
    DataRecords,
    VoterHistory,
    control_batch,
    data_records,
    data_values,
    leader_change,
    voters_record,
)
from tidelog.raft.election_file import read_election, write_election
from tidelog.raft.events import (
    Appended,
    Commit,
    Effect,
    ElectionState,
    Event,
    Lead,
    LogEnd,
    LogFailed,
    MadeDurable,
    Remember,
    Resigned,
    SetTimer,
    Started,
    StopLeading,
    TimedOut,
    VotersChanged,
)
from tidelog.raft.fetch import cut_at
from tidelog.raft.metadata_log import MetadataLog
from tidelog.raft.quorum import Quorum, Role
from tidelog.raft.settings import RaftSettings
from tidelog.raft.snapshot import SnapshotContents, SnapshotError, SnapshotId, read_snapshot
from tidelog.raft.voters import ReplicaKey, Voter, VoterSet
from tidelog.wire.batch import BatchHeader, check, iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.records.control import ControlRecord, KRaftVersionRecord, decode_control
from tidelog.wire.uuids import uuid_text

_logger = logging.getLogger(__name__)

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""The most that one batch of the metadata log may hold: as Kafka's raft has it."""


class ReplayBatch(NamedTuple):
    """Committed records that weren't decided here, or not since the start."""

    last_offset: int
    epoch: int
    timestamp_ms: int
    values: list[bytes]

    @property
    def first_offset(self) -> int:
        """The offset of the first value; a batch of raft's own has none."""
        return self.last_offset + 1 - len(self.values)


class RaftListener(Protocol):
    """The machine on top."""

    def load_snapshot(self, contents: SnapshotContents, snapshot: SnapshotId) -> None: ...

    def replay(self, batches: Iterable[ReplayBatch]) -> None: ...

    def lead(self, epoch: int) -> None:
        """This node leads, and everything in its log is replayed."""
        ...

    def stop_leading(self, epoch: int) -> None: ...

    def committed(self, end: int) -> None:
        """Everything below `end` is committed; called while leading, replayed batches apart."""
        ...

    def snapshot_source(self) -> SnapshotSource | None:
        """The committed state, or None where there is none worth a checkpoint."""
        ...


class RaftDriver:
    """One replica of the metadata log, running."""

    def __init__(
        self,
        env: Environment,
        folder: str,
        local: Voter,
        log: MetadataLog,
        settings: RaftSettings,
        send: Callable[[Effect], None] | None = None,
    ) -> None:
        self.folder = folder
        self.local = local
        self.quorum: Quorum
        self._env = env
        self._log = log
        self._settings = settings
        self._send = send
        self._listener: RaftListener
        self._timer: Timer | None = None
        self._checkpointer: Checkpointer | None = None
        self._replayed = 0
        self._leading: int | None = None
        self._history = VoterHistory()
        self._taking_part = False
        self._stopped = False
        self.offline: str | None = None
        """Why the log can't be used any more: what happened, and where."""

    # ---- what others may know ----

    @property
    def epoch(self) -> int:
        return self.quorum.epoch

    @property
    def leader_id(self) -> int:
        return self.quorum.leader_id

    @property
    def high_watermark(self) -> int:
        return self.quorum.high_watermark

    @property
    def log_end(self) -> int:
        return self._log.end.offset

    @property
    def log_start(self) -> int:
        return self._log.log_start

    @property
    def kraft_version(self) -> int:
        return self._history.kraft_version

    @property
    def voters(self) -> VoterSet:
        return self.quorum.voters

    @property
    def snapshots(self) -> Sequence[SnapshotId]:
        """The checkpoints there are, oldest first."""
        return () if self._checkpointer is None else self._checkpointer.snapshots

    # ---- start and stop ----

    def start(self, listener: RaftListener) -> None:
        """Recover, load the newest checkpoint into `listener`, take part in elections. A quorum of one leads soon."""
        disk = self._env.disk
        self._listener = listener
        disk.make_folders(self.folder)
        self._log.open(self._durable, self._offline)
        self._checkpointer = Checkpointer(
            self._env,
            self.folder,
            self._log,
            self._settings,
            listener.snapshot_source,
            self._history.at,
        )
        history = self._history
        loaded_ms = self._load()
        log_bytes = self._scan_control_batches()
        self._checkpointer.begin(log_bytes, self._env.clock.now_ms() - loaded_ms)
        voters = history.voters or VoterSet((Voter(ReplicaKey(self.local.key.id), self.local.endpoints),))
        local = self.local.key if self.kraft_version else ReplicaKey(self.local.key.id)
        if not voters.is_voter(local):
            raise KafkaError(
                ErrorCode.INVALID_VOTER_KEY,
                f"{self.folder}: node {local.id} with directory {uuid_text(local.directory_id)} is none of the voters "
                + ", ".join(f"{v.key.id} with {uuid_text(v.key.directory_id)}" for v in voters.voters)
                + ": meta.properties must have the node.id and directory.id that the metadata was written with",
            )
        self.quorum = Quorum(
            local,
            voters,
            read_election(disk, self.folder) or ElectionState(),
            self._log.end,
            durable=self._log.durable_end,
            high_watermark=self._replayed,
        )
        self._taking_part = True
        self.handle(Started())

    def stop(self) -> None:
        """Take no further part. What is committed is durable; the log is closed by the store that it belongs to."""
        self._stopped = True
        if self._checkpointer is not None:
            self._checkpointer.stop()
        if self._timer is not None:
            self._timer.cancel()
        self.resign()

    def resign(self) -> None:
        """Lead no longer: the machine on top can't, though the log can be written."""
        if self._leading is not None:
            self.handle(Resigned())

    def _load(self) -> int:
        """Hand the newest checkpoint on, and see that the log goes on where it ends. Of when it is."""
        timestamp_ms = self._env.clock.now_ms()
        snapshot = self.snapshots[-1] if self.snapshots else SnapshotId(0, 0)
        if self._log.log_start > snapshot.offset:
            raise SnapshotError(
                f"{self.folder}: the log begins at offset {self._log.log_start}, the newest checkpoint ends at "
                f"{snapshot.offset}: what lies between is missing. Restore the checkpoint that was there"
            )
        if self.snapshots:
            contents = read_snapshot(self._env.disk, f"{self.folder}/{snapshot.file_name}")
            timestamp_ms = contents.header.last_contained_log_timestamp
            for record in contents.control:
                self._history.note(record, in_log=snapshot.offset > 0, offset=snapshot.offset - 1)
            if snapshot.offset:
                self._listener.load_snapshot(contents, snapshot)
        self._log.begin_behind(snapshot)  # the checkpoint is durable, the log's end may not have been
        self._replayed = snapshot.offset
        return timestamp_ms

    def _scan_control_batches(self) -> int:
        """Who votes, as the log behind the checkpoint has it; how many bytes that is."""
        log_bytes = 0
        for header, buffer in self._log.batches(self._replayed, self._log.end.offset):
            log_bytes += header.size
            self._note_control(header, buffer)
        return log_bytes

    def _note_control(self, header: BatchHeader, buffer: Buffer) -> None:
        if header.control:
            for record in records(buffer, header):
                control = decode_control(record.key or b"", record.value or b"")
                self._history.note(control, in_log=True, offset=record.offset)

    # ---- events and effects ----

    def handle(self, event: Event) -> None:
        """Let the quorum decide, and do what it says, in order."""
        for effect in self.quorum.handle(event):
            match effect:
                case Remember(election):
                    # The loop waits: nothing may happen before this is durable, and elections are rare.
                    write_election(self._env.disk, self.folder, election, self.kraft_version, self.voters)
                case Lead(epoch, granting):
                    self._open_epoch(epoch, granting)
                case Commit(offset):
                    self._committed(offset)
                case StopLeading(epoch):
                    self._leading = None
                    self._listener.stop_leading(epoch)
                case SetTimer():
                    self._set_timer(effect)
                case _:
                    assert self._send is not None, f"{effect} is for other voters, and there is no way to reach them"
                    self._send(effect)

    def _open_epoch(self, epoch: int, granting: Sequence[int]) -> None:
        """Append the batch that opens the epoch; with it the voters, where the log doesn't name them as they are."""
        voters = self.voters
        opening: list[ControlRecord] = [leader_change(self.local.key.id, voters, granting)]
        if self.kraft_version > 0 and (not self._history.in_log or self.local not in voters.voters):
            voters = voters.with_voter(self.local)
            opening += [KRaftVersionRecord(kraft_version=self.kraft_version), voters_record(voters)]
        self.handle(VotersChanged(voters))
        self._write(control_batch(opening, self.log_end, epoch, self._env.clock.now_ms()))

    def _write(self, batch: bytearray) -> None:
        self._log.append(batch)
        for header in iterate(batch):
            self._note_control(header, batch)
        assert self._checkpointer is not None
        self._checkpointer.wrote(len(batch))
        self.handle(Appended(self._log.end))
        if self._log.durable_end == self.log_end:
            self._durable(self.log_end)

    def _durable(self, end: int) -> None:
        self.handle(MadeDurable(end))

    def _offline(self, reason: str) -> None:
        """The log failed: what was appended last may or may not be there. This node can't lead with it."""
        self.offline = reason
        _logger.error("the metadata log is offline, this node leads it no longer: %s", reason)
        if self._taking_part:
            self.handle(LogFailed())

    def _committed(self, end: int) -> None:
        if self._leading is not None:
            self._replayed = end
            self._listener.committed(end)
        else:
            self._replay_to(end)
            if self.quorum.role is Role.LEADER:
                self._replay_to(self.log_end)
                self._leading = self.epoch
                self._listener.lead(self.epoch)
        assert self._checkpointer is not None
        if self.snapshots:
            self._history.forget_before(self.snapshots[-1].offset)
        self._checkpointer.take_if_due()

    def _replay_to(self, end: int) -> None:
        if end > self._replayed:
            start, self._replayed = self._replayed, end  # once, also where whoever follows it fails
            self._listener.replay(self._decoded(start, end))

    def _decoded(self, start: int, end: int) -> Iterator[ReplayBatch]:
        for header, buffer in self._log.batches(start, end):
            try:
                check(buffer, header, header.end)
                values = [] if header.control else data_values(buffer, header)
            except (KafkaError, MalformedError) as error:
                code = error.code if isinstance(error, KafkaError) else ErrorCode.CORRUPT_MESSAGE
                raise KafkaError(code, f"the batch at offset {header.base_offset}: {error}") from None
            yield ReplayBatch(header.last_offset, header.leader_epoch, header.max_timestamp, values)

    def _set_timer(self, timer: SetTimer) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopped or len(self.voters.voters) == 1:
            return  # a quorum of one waits for nobody
        timeout_ms = self._settings.timeout_ms(timer, self._env.random.random_int)
        self._timer = self._env.loop.call_later(timeout_ms / 1000, self.handle, TimedOut())

    def take_snapshot(self) -> Promise[None]:
        """Write a checkpoint of the committed state now."""
        assert self._checkpointer is not None
        return self._checkpointer.take()

    # ---- following ----

    def take(self, batches: bytearray) -> None:
        """Append what the leader answered to a fetch: batches with their offsets and epochs. Voters that they name
        count from now on, committed or not. Raises as the log does where one isn't sound."""
        assert self.quorum.role is Role.FOLLOWER
        self._write(batches)
        self._voters_as_logged()

    def cut(self, diverging: LogEnd) -> None:
        """The leader's log parts ways with this one at `diverging` or before. Voters that were named behind the cut are
        taken back."""
        assert self.quorum.role is Role.FOLLOWER
        offset = cut_at(self._log, diverging)
        assert offset >= self.high_watermark, f"what is committed would be cut at {offset}"
        self._log.truncate_to(offset)
        self._history.cut(offset)
        self.handle(Appended(self._log.end))
        self._voters_as_logged()

    def _voters_as_logged(self) -> None:
        voters = self._history.voters
        if voters is not None and voters != self.voters:
            self.handle(VotersChanged(voters))

    # ---- appending, while leading ----

    @property
    def next_offset(self) -> int:
        return self.log_end

    def append(self, values: Sequence[bytes], epoch: int, now_ms: int) -> int:
        """Append one batch; the offset of its last record. As `append_records`."""
        return self.append_records(whole(data_records(values)), epoch, now_ms)

    def append_records(self, records: DataRecords, epoch: int, now_ms: int) -> int:
        """Append one batch; the offset of its last record. NOT_CONTROLLER where this node doesn't lead `epoch`,
        KAFKA_STORAGE_ERROR where the log can't be written: on a full disk it goes on later, otherwise it is offline.
        """
        if self._leading != epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"epoch {epoch} is not led here")
        batch = records.batch(self.log_end, epoch, now_ms)
        if len(batch) > BATCH_BYTES_MAX:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a metadata batch of {len(batch)} bytes; {BATCH_BYTES_MAX} are allowed",
            )
        last = self.log_end + records.total - 1
        self._write(batch)
        return last
