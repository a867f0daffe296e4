"""The shell around the quorum: carries out what it decides on the log, the `quorum-state` file, timers, checkpoints.

The way of a decision passes here twice: down, as batches that are appended and made durable; and up again, as the high
watermark that tells the machine what is committed.
"""

import logging
from collections.abc import Callable, Sequence

from tidelog.env import Environment
from tidelog.env.loop import Timer
from tidelog.env.network import Buffer
from tidelog.env.promise import Promise
from tidelog.env.slices import whole
from tidelog.raft.checkpointer import Checkpointer
from tidelog.raft.control import (
    DataRecords,
    VoterHistory,
    control_batch,
    data_records,
    leader_change,
    voters_record,
)
from tidelog.raft.election_file import FILE_NAME, read_election, write_election
from tidelog.raft.events import (
    AnswerVote,
    Appended,
    Commit,
    CommitHeard,
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
    VoteRequested,
    VotersChanged,
)
from tidelog.raft.fetch import cut_at
from tidelog.raft.metadata_log import MetadataLog
from tidelog.raft.quorum import Quorum, Role
from tidelog.raft.replay import RaftListener, replay_batches
from tidelog.raft.settings import RaftSettings
from tidelog.raft.snapshot import SnapshotContents, SnapshotError, SnapshotId, read_snapshot
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.wire.batch import BatchHeader, iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.control import ControlRecord, KRaftVersionRecord, decode_control
from tidelog.wire.uuids import uuid_text

_logger = logging.getLogger(__name__)

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""The most that one batch of the metadata log may hold: as Kafka's raft has it."""


class _UnrememberedError(Exception):
    """The election can't be written down."""


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
        static_voters: VoterSet | None = None,
    ) -> None:
        self.folder = folder
        self.local = local
        self.quorum: Quorum
        self._env = env
        self._log = log
        self._settings = settings
        self._send = send
        self._static_voters = static_voters
        self._watchers: list[Callable[[], None]] = []
        self._depth = 0
        self._vote: AnswerVote | None = None
        self._listener: RaftListener
        self._timer: Timer | None = None
        self._checkpointer: Checkpointer | None = None
        self._replayed = 0
        self._leading: int | None = None
        self._history = VoterHistory()
        self._taking_part = False
        self._started = False
        self._stopped = False
        self._forgot = False
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
    def end(self) -> LogEnd:
        return self._log.end

    @property
    def log(self) -> MetadataLog:
        return self._log

    @property
    def durable_end(self) -> int:
        return self._log.durable_end

    @property
    def leads(self) -> bool:
        """Whether this node leads, and what it wrote in its epoch is committed so far as to say so."""
        return self._leading is not None

    @property
    def follows(self) -> bool:
        """Whether another node is known to lead, and followed."""
        return self.quorum.role is Role.FOLLOWER

    @property
    def voters_committed(self) -> bool:
        """Whether the record that names the voters is committed: only then may it be followed by another."""
        return self._history.voters_offset < self.high_watermark

    @property
    def stopped(self) -> bool:
        """Whether it takes no part any more: it was told so, or could not remember what it was about to say."""
        return self._stopped or self._forgot

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called after whatever may have moved the log's ends, the high watermark, or who leads."""
        self._watchers.append(changed)

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
        disk.sync_folder(self.folder.rpartition("/")[0])  # or the power takes the folder, with what it remembers
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
        voters = history.voters or self._voters_of_settings()
        # Others are told of the disk whatever the version: it may be raised while they follow.
        local = self.local.key if self.kraft_version or self._send is not None else ReplicaKey(self.local.key.id)
        if not voters.is_voter(local) and (self._send is None or voters.is_only(local.id)):  # nobody could be followed
            raise KafkaError(
                ErrorCode.INVALID_VOTER_KEY,
                f"{self.folder}: node {local.id} with directory {uuid_text(local.directory_id)} is none of the voters "
                + ", ".join(f"{v.key.id} with {uuid_text(v.key.directory_id)}" for v in voters.voters)
                + ": meta.properties must have the node.id and directory.id that the metadata was written with",
            )
        assert self._send is not None or len(voters.voters) <= 1, "others vote, and there is no way to reach them"
        self.quorum = Quorum(
            local,
            voters,
            read_election(disk, self.folder) or ElectionState(),
            self._log.end,
            durable=self._log.durable_end,
            high_watermark=self._replayed,
            voters_before=history.voters_before,
            voters_offset=history.voters_offset,
        )
        self._taking_part = True
        self.handle(Started())
        self._started = True

    def _voters_of_settings(self) -> VoterSet:
        """Who votes where the log doesn't say so: the voters of the settings (kraft.version 0); nobody that is known of
        where the node was formatted to join others; or this node alone, where there are no others."""
        if self._static_voters is not None:
            return self._static_voters
        if self._send is not None:
            return VoterSet(())
        return VoterSet((Voter(ReplicaKey(self.local.key.id), self.local.endpoints),))

    def listens_at(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Where this replica listens for the others, known before it starts."""
        self.local = self.local._replace(endpoints=endpoints)

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
        """Let the quorum decide, and do what it says, in order; then tell those who watch."""
        if self._forgot:
            return
        self._depth += 1
        try:
            for effect in self.quorum.handle(event):
                self._carry_out(effect)
        except _UnrememberedError as error:
            if self._depth > 1:
                raise
            self._forget(error)
        finally:
            self._depth -= 1
        if not self._depth and not self._stopped:
            for changed in self._watchers:
                changed()

    def answer_vote(self, asked: VoteRequested) -> AnswerVote:
        """What a request for a vote is answered; what it promises is durable. Raises KAFKA_STORAGE_ERROR where that
        can't be."""
        self.handle(asked)
        if self._forgot:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline or "")
        assert self._vote is not None
        return self._vote

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Remember(election):
                # The loop waits: nothing may happen before this is durable, and elections are rare.
                self._remember(election)
            case Lead(epoch, granting):
                self._open_epoch(epoch, granting)
            case Commit(offset):
                self._committed(offset)
            case StopLeading(epoch):
                self._leading = None
                self._listener.stop_leading(epoch)
            case SetTimer():
                self._set_timer(effect)
            case AnswerVote():
                self._vote = effect
            case _:
                assert self._send is not None, f"{effect} is for other voters, and there is no way to reach them"
                self._send(effect)

    def _remember(self, election: ElectionState) -> None:
        try:
            write_election(self._env.disk, self.folder, election, self.kraft_version, self.voters)
        except OSError as error:
            if not self._started:
                raise
            raise _UnrememberedError(f"{self.folder}/{FILE_NAME} can't be written: {error}") from error

    def _forget(self, error: _UnrememberedError) -> None:
        """What was decided last isn't durable, and what followed from it was not done: nobody may learn of it. The next
        start reads what was remembered before."""
        self._forgot = True
        self.offline = str(error)
        if self._timer is not None:
            self._timer.cancel()
        if self._checkpointer is not None:
            self._checkpointer.stop()
        _logger.error("this node takes no part in the quorum any more: %s", error)

    def _open_epoch(self, epoch: int, granting: Sequence[int]) -> None:
        """Append the batch that opens the epoch; with it the voters, where the log doesn't name them as they are."""
        voters = self.voters
        opening: list[ControlRecord] = [leader_change(self.local.key.id, voters, granting)]
        named = self._history.in_log and self.local in voters.voters
        if self.kraft_version > 0 and not named and voters.is_voter(self.quorum.local):
            voters = voters.with_voter(self.local)
            opening += [KRaftVersionRecord(kraft_version=self.kraft_version), voters_record(voters)]
        try:
            self._write(control_batch(opening, self.log_end, epoch, self._env.clock.now_ms()))
        except KafkaError as error:
            if not self._started:
                raise
            if self._is_alone:
                _logger.error("epoch %d can't be opened, and is tried again: %s", epoch, error)
                self.handle(Resigned())
            return  # where there are others, it resigns as soon as this is over
        self._voters_as_logged()

    def _write(self, batch: bytearray) -> None:
        """Append batches. Where that fails, those before count all the same: they are fetched behind, and so they are
        what others take for durable here."""
        before = self.log_end
        try:
            self._log.append(batch)
        except KafkaError as error:
            self._give_way(error)
            raise
        finally:
            if self.log_end > before:
                self._wrote(batch)

    def _wrote(self, batch: bytearray) -> None:
        written = 0
        for header in iterate(batch):
            if header.base_offset < self.log_end:
                self._note_control(header, batch)
                written += header.size
        assert self._checkpointer is not None
        self._checkpointer.wrote(written)
        self.handle(Appended(self._log.end))
        if self._log.durable_end == self.log_end:
            self._durable(self.log_end)

    def _give_way(self, error: KafkaError) -> None:
        """The log goes on when the disk has room again. Until then the others may have some: this node leads no longer,
        as soon as whoever writes has heard of the failure."""
        epoch = self.epoch

        def resign() -> None:
            if self.quorum.role is Role.LEADER and epoch == self.epoch and not self.stopped:
                self.handle(Resigned())

        if self.quorum.role is Role.LEADER and self.offline is None and not self._is_alone:
            _logger.error("the metadata log can't be written here, and another voter is to lead it: %s", error)
            self._env.loop.call_later(0, resign)

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
        if self._leading is not None and self.voters_committed and not self.voters.is_voter(self.quorum.local):
            self.resign()  # it was taken out of the voters, and that is committed

    def _replay_to(self, end: int) -> None:
        if end > self._replayed:
            start, self._replayed = self._replayed, end  # once, also where whoever follows it fails
            self._listener.replay(replay_batches(self._log, start, end))

    def _set_timer(self, timer: SetTimer) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopped or not self.waits():
            return
        timeout_ms = self._settings.timeout_ms(timer, self._env.random.random_int)
        self._timer = self._env.loop.call_later(timeout_ms / 1000, self.handle, TimedOut())

    def waits(self) -> bool:
        """Whether something is to happen after a while where nobody is heard: also of a leader that resigned, whose log
        may be the only one that is long enough. A quorum of one waits for nobody: it leads, or can't write its log."""
        gone = self.quorum.role is Role.RESIGNED and self.offline is not None
        return not (self._is_alone and (gone or self.quorum.role is Role.LEADER))

    @property
    def _is_alone(self) -> bool:
        return len(self.voters.voters) == 1 and self.voters.is_voter(self.quorum.local)

    def take_snapshot(self) -> Promise[None]:
        """Write a checkpoint of the committed state now."""
        assert self._checkpointer is not None
        return self._checkpointer.take()

    # ---- following ----

    def take(self, batches: bytearray) -> None:
        """Append what the leader answered to a fetch: batches with their offsets and epochs. Voters that they name
        count from now on, committed or not. Raises as the log does where one isn't sound."""
        assert self.quorum.role is Role.FOLLOWER
        try:
            self._write(batches)
        finally:
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

    def install(self, snapshot: SnapshotId, contents: SnapshotContents) -> None:
        """Go on behind a checkpoint of the leader, which is durable in the folder. What was in the log, committed or
        not, goes: all that is committed up to there is in the checkpoint."""
        assert self.quorum.role is Role.FOLLOWER
        assert snapshot.offset > self.high_watermark, f"{snapshot} holds less than is committed here"
        assert self._checkpointer is not None
        self._log.begin_behind(snapshot)
        assert self._log.end == LogEnd(snapshot.epoch, snapshot.offset) or self._log.end.offset > snapshot.offset
        self._checkpointer.installed(snapshot)
        self._history.begin_behind(contents.control, snapshot.offset)
        self._replayed = snapshot.offset
        self._listener.load_snapshot(contents, snapshot)
        self.handle(Appended(self._log.end))
        self._durable(self._log.durable_end)
        self._voters_as_logged()
        self.handle(CommitHeard(self.epoch, snapshot.offset))

    def _voters_as_logged(self) -> None:
        voters = self._history.voters
        if voters is not None:
            self.handle(VotersChanged(voters, self._history.voters_before, self._history.voters_offset))

    # ---- appending, while leading ----

    @property
    def next_offset(self) -> int:
        return self.log_end

    def append_voters(self, voters: VoterSet) -> int:
        """Append who votes from now on; the offset of the record. They count at once, committed or not."""
        if self._leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the quorum isn't led here")
        assert self.voters_committed, "one change of the voters at a time"
        offset = self.log_end
        self._write(control_batch([voters_record(voters)], offset, self.epoch, self._env.clock.now_ms()))
        self._voters_as_logged()
        return offset

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
