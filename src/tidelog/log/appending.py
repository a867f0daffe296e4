"""Writing to a log: check, patch, write, and what an append changes. Where the way of a message ends.

Nothing is on disk, and next to nothing in memory, before the first write (beginning.py).
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING

from tidelog.log import given, producer_state, windows
from tidelog.log.aborted import AbortedIndexError
from tidelog.log.bounds import RECORDS_MAX
from tidelog.log.commit import TOO_MANY_FILES
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.names import LOG
from tidelog.log.producer_snapshot import encode_snapshot
from tidelog.log.reading import ReadableLog
from tidelog.log.rewriting import FULL_DISK
from tidelog.log.scan import BadBatch
from tidelog.log.validate import Admitted, Unlooked, admit, begin, too_large_for_segment
from tidelog.wire.batch import (
    APPEND_TIME_FLAG,
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    SEQUENCE_MAX,
    BatchHeader,
    read_header,
    stamp_append_time,
)
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.env.network import Buffer
    from tidelog.env.promise import Promise
    from tidelog.log.producers import Producers
    from tidelog.log.segment import Segment

FLUSH_BYTES = 64 * 1024 * 1024
"""The recovery point is moved on when this much was written behind it: what a start after a crash reads at most."""

EPOCH_MAX = 2**31 - 1
"""Of a leader."""

_logger = logging.getLogger("tidelog.log")
# All of a header but what the broker sets, and the base timestamp: what `append` looks at.
_look = Struct(">qi4xbIhi8xqqhii").unpack_from
_CHECKED = slice(ATTRIBUTES_AT, None)  # what the checksum covers
_patch = Struct(">qii").pack_into  # base offset, length, leader epoch: what the broker sets, outside of the checksum


class WritableLog(ReadableLog):
    """One partition, as its writers see it."""

    __slots__ = ()

    # -- what is known of leaders and producers, loaded when first needed

    @property
    def epochs(self) -> LeaderEpochs:
        epochs = self._epochs
        if epochs is None:
            with self._guard():
                epochs = self._epochs = self._load_epochs()
            epochs.truncate_from_start(self.ends.log_start)
        if self._led is not None:
            led, self._led = self._led, None
            epochs.assign(*led)
        return epochs

    @property
    def producers(self) -> Producers:
        producers = self._producers
        if producers is None:
            with self._guard():
                producers = self._producers = producer_state.load_producers(
                    self.segments, self.snapshots, self.unsynced, self.ends
                )
            if self.high_watermark >= 0:
                producers.recall(self.high_watermark)
        return producers

    def _load_epochs(self) -> LeaderEpochs:
        return producer_state.load_epochs(self.segments, self.ends.recovery_point) if self.segments else LeaderEpochs()

    @property
    def first_unstable(self) -> int:
        """Where the oldest open transaction begins; -1 where there is none."""
        producers = self._producers
        if producers is None:
            if not self.segments:
                return -1  # nothing is in it: 100,000 idle partitions remember no producers
            producers = self.producers
        return producers.first_unstable

    def advance_high_watermark(self, offset: int) -> None:
        """The replica's high watermark is `offset` now: transactions that ended below it are no longer unstable."""
        self.high_watermark = offset
        producers = self._producers  # those not loaded yet will be as of this end
        if producers is not None and producers.first_unstable >= 0:
            producers.advance_high_watermark(offset)

    def begin_at_high_watermark(self, offset: int) -> None:
        """What a replica knows of it when it begins: less may be committed than is durable."""
        if self._producers is not None:
            self._producers.recall(offset)
        self.advance_high_watermark(offset)

    def is_unread(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether `read_windows` may tell more of a producer's batch than is known."""
        return self.producers.is_unread(producer_id, epoch, sequence)

    @property
    def has_unread(self) -> bool:
        """Whether a snapshot brought producers back of whose last batches `read_windows` may tell more."""
        return self._producers is not None and self._producers.unread >= 0

    def read_windows(self) -> Promise[None]:
        """Learn, off the loop, what of its producers' last batches a snapshot didn't tell."""
        return self._store.windows.read(self._log)

    def ranges_before(self, offset: int) -> list[windows.Range]:
        """Where the batches before `offset` lie, as far back as windows are looked for."""
        with self._guard():
            return windows.ranges_before(self.segments, offset)

    def _forget_producers(self) -> None:
        """The log is cut: they are read again when they are needed, and so is who leads."""
        self._producers = None
        self._epoch = -1

    def lead(self, leader_epoch: int) -> None:
        """This broker leads in a new epoch: what it writes begins at the log's end."""
        if self._led is not None or self._epochs is not None:
            self.epochs.assign(leader_epoch, self.ends.log_end)
        else:
            self._led = leader_epoch, self.ends.log_end

    def _enter_epoch(self, leader_epoch: int, base: int) -> None:
        if leader_epoch >= 0:
            self.epochs.assign(leader_epoch, base)
        self._epoch = leader_epoch

    # -- writing

    def append(
        self,
        buffer: memoryview,
        start: int,
        end: int,
        leader_epoch: int,
        now_ms: int,
        *,
        internal: bool = False,
        admitted: bool = False,
    ) -> tuple[int, int, int]:
        """Append the one batch in [start, end) of a writable buffer, patched in place.

        Returns (base offset, next offset, time of the append or -1). A duplicate of one of its producer's last five
        batches gives the offsets of the original and writes nothing. Raises KafkaError with Kafka's code; a failed
        write takes the log offline. `internal`: the broker itself writes it, control records perhaps. `admitted`: it
        was looked into by what `admit` gave; without that, Lengthy is raised where the look takes too long.
        """
        batch = buffer[start:end]
        append_time = -1
        plain = self._read_plain(batch, now_ms)
        if plain is not None:
            size, length, attributes, delta, max_timestamp, producer_id, epoch, sequence = plain
        else:
            buffer, start, end, header = self._unusual(buffer, start, end, now_ms, internal, admitted)
            batch = buffer[start:end]
            _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _, _ = header
            size = end - start
            if attributes & APPEND_TIME_FLAG:
                append_time = now_ms
        producers = None
        if producer_id >= 0 and not attributes & CONTROL_FLAG:
            producers = self._producers
            if producers is None:
                producers = self.producers
            appended = producers.check(producer_id, epoch, sequence, delta, attributes)
            if appended is not None:
                return appended.first_offset, appended.last_offset + 1, appended.timestamp
        ends = self.ends
        base = ends.log_end
        last = base + delta
        segment = self.segments.active
        if (
            segment is None
            or segment.size + size > segment.size_limit
            or max_timestamp > segment.roll_after
            or last > segment.offset_limit
        ):
            segment = self._make_room(size, last, max_timestamp, now_ms)
        _patch(batch, 0, base, length, leader_epoch)
        file = segment.file
        try:
            if leader_epoch != self._epoch:
                self._enter_epoch(leader_epoch, base)  # before the write: it may have to read the disk, and fail
            if file is None:
                file = self._store.files.open(segment)
            if producer_id >= 0 and producers is None:  # a marker
                self._note_aborted(segment, batch, read_header(batch))
            file.append(batch)
        except OSError as error:
            raise self._write_failed(segment, error) from error
        segment.took(base, last, size, max_timestamp)
        next_offset = last + 1
        if ends.wrote(next_offset):
            self._store.commit.request(self._log)
        if producer_id >= 0:
            if producers is not None:
                producers.record(producer_id, epoch, sequence, base, last, max_timestamp, attributes, now_ms)
            else:
                self.producers.replay(batch, read_header(batch))
        if self._full:
            self.has_room()
        return base, next_offset, append_time

    def _read_plain(self, batch: memoryview, now_ms: int) -> tuple[int, int, int, int, int, int, int, int] | None:
        """What an append needs of a batch that is plainly fine; None: `_unusual` has to look at it."""
        size = len(batch)
        if size < HEADER_BYTES:
            return None
        zero, length, magic, crc, attributes, delta, max_timestamp, producer_id, epoch, sequence, count = _look(batch)
        if (
            attributes in self._plain
            and magic == MAGIC
            and length == size - LOG_OVERHEAD
            and not zero  # base offset
            and 0 <= delta == count - 1 < RECORDS_MAX
            and size <= self._max_bytes
            and max_timestamp - now_ms <= self._after_ms
            and (producer_id < 0 or sequence >= 0)
            and crc32c(batch[_CHECKED]) == crc
        ):
            return size, length, attributes, delta, max_timestamp, producer_id, epoch, sequence
        return None

    def _unusual(
        self, buffer: memoryview, start: int, end: int, now_ms: int, internal: bool, admitted: bool
    ) -> Admitted:
        """A batch that isn't plainly fine, or has to be changed."""
        if not admitted:
            return self._store.looks.at_once(
                lambda budget: admit(
                    self.place, self.config, buffer, start, end, now_ms, internal=internal, budget=budget
                )
            )
        if read_header(buffer, start).attributes & APPEND_TIME_FLAG:  # the look took its time
            stamp_append_time(buffer, start, end, now_ms)
        return Admitted(buffer, start, end, read_header(buffer, start))

    def admit(self, buffer: memoryview, now_ms: int) -> Admitted | Unlooked | None:
        """Look into the batch that fills `buffer`, ahead of `append`, where the topic wants that; else None.

        Unlooked: it takes long, and is done aside (`log/looks.py`). Raises KafkaError where it is refused.
        """
        if len(buffer) >= HEADER_BYTES:
            header = read_header(buffer)
            if header.attributes in self._plain and header.max_timestamp - now_ms <= self._after_ms:
                return None
        return self._store.looks.at_once(lambda budget: begin(self.place, self.config, buffer, now_ms, budget))

    def append_together(
        self, buffer: memoryview, spans: list[tuple[int, int]], leader_epoch: int, now_ms: int
    ) -> list[int]:
        """Append the batches in these spans of a writable buffer, each as `append` would, with one write.

        As many from the first on as are plainly fine and follow each other, of one producer or of none; and none where
        they don't fit into the segment. `append` does the next one, or tells what is wrong with it. Returns their base
        offsets, and the log's end behind them.
        """
        segment = self.segments.active
        base = self.ends.log_end
        offsets = [base]
        parts: list[Buffer] = []
        batches: list[given.Batch] = []
        size, newest, last_id, next_sequence = 0, -1, -1, 0
        for start, end in spans:
            batch = buffer[start:end]
            plain = self._read_plain(batch, now_ms)
            if plain is None:
                break
            batch_size, _, attributes, delta, max_timestamp, producer_id, epoch, sequence = plain
            if batches:
                if producer_id != last_id:
                    break
                if producer_id >= 0 and (sequence, epoch, attributes) != (next_sequence, *batches[-1][5:8:2]):
                    break
            elif producer_id >= 0 and not self._is_next(plain):
                break
            size += batch_size
            if max_timestamp > newest:
                newest = max_timestamp
            last_id, next_sequence = producer_id, (sequence + delta + 1) & SEQUENCE_MAX
            last = base + delta
            parts.append(batch)
            batches.append((base, last, batch_size, max_timestamp, producer_id, epoch, sequence, attributes))
            base = last + 1
            offsets.append(base)
        if segment is None or not batches or not segment.takes(size, len(batches), base - 1, newest):
            return offsets[:1]
        for part, placed in zip(parts, batches, strict=True):
            _patch(part, 0, placed[0], placed[2] - LOG_OVERHEAD, leader_epoch)
        try:
            self._write(segment, leader_epoch, parts, batches, now_ms)
        except KafkaError:
            for part, placed in zip(parts, batches, strict=True):
                _patch(part, 0, 0, placed[2] - LOG_OVERHEAD, leader_epoch)
            return offsets[:1]
        return offsets

    def _is_next(self, plain: tuple[int, ...]) -> bool:
        """Whether a batch is the next of its idempotent producer, and not one sent again."""
        _, _, attributes, delta, _, producer_id, epoch, sequence = plain
        if attributes & CONTROL_FLAG:
            return False
        try:
            return self.producers.check(producer_id, epoch, sequence, delta, attributes) is None
        except KafkaError:
            return False

    def append_records(
        self, buffer: memoryview, start: int, end: int, now_ms: int, *, epoch_max: int = EPOCH_MAX
    ) -> tuple[int, int]:
        """Append batches that have their offsets and leader epochs already: a follower's, the metadata log's.

        Returns (first base offset, next offset). Each must be whole and sound, begin at the log's end or above, and be
        of no newer epoch than `epoch_max`; what comes before the first that isn't was appended all the same. Those that
        go to one segment are one write.
        """
        first, pos, ends = -1, start, self.ends
        while pos < end:
            header = given.check(self.place, buffer, pos, end, ends.log_end)
            if header.leader_epoch > epoch_max:
                raise KafkaError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"{self.place}: a batch of epoch {header.leader_epoch} from the leader of epoch {epoch_max}",
                )
            segment = self._make_room(header.size, header.last_offset, header.max_timestamp, now_ms)
            if given.is_marker(header):
                batches, behind, marker = [given.batch_of(header)], header.end, header._replace(pos=0)
            else:
                (batches, behind), marker = given.gather(segment, buffer, header, end), None
            # Their producers were seen now, as on the leader: by old timestamps a follower would forget them at once,
            # and take for new what they send again after a failover.
            self._write(segment, header.leader_epoch, [buffer[pos:behind]], batches, now_ms, marker=marker)
            pos = behind
            first = header.base_offset if first < 0 else first
        return first, ends.log_end

    def _write(
        self,
        segment: Segment,
        leader_epoch: int,
        parts: list[Buffer],
        batches: list[given.Batch],
        seen_ms: int,
        *,
        marker: BatchHeader | None = None,
    ) -> None:
        """Write these batches, of one leader epoch, and take note of them. `marker`: the one that is in there alone.

        Producers that aren't known yet are read before: later the log would tell of these batches, too.
        """
        if self._producers is None and any(batch[4] >= 0 for batch in batches):
            self._producers = self.producers
        try:
            if leader_epoch != self._epoch:
                self._enter_epoch(leader_epoch, batches[0][0])
            file = self._store.files.open(segment)  # first: it may fail, and what is noted then would stay noted
            if marker is not None:
                self._note_aborted(segment, memoryview(parts[0]), marker)
            file.append_all(parts)
        except OSError as error:
            raise self._write_failed(segment, error) from error
        took, last, record = segment.took, -1, None
        for base, last, size, max_timestamp, producer_id, epoch, sequence, attributes in batches:
            took(base, last, size, max_timestamp)
            if producer_id >= 0 and marker is None:
                if record is None:
                    record = self.producers.record
                record(producer_id, epoch, sequence, base, last, max_timestamp, attributes, seen_ms)
        due = self.ends.wrote(last + 1, len(batches))
        if marker is not None:
            self.producers.replay(parts[0], marker)
        if due:
            self._store.commit.request(self._log)
        if self._full:
            self.has_room()

    def _note_aborted(self, segment: Segment, data: memoryview, header: BatchHeader) -> None:
        """Before a marker is written: the transaction that it aborts, if it does, goes to the segment's index.

        First, since it may fail: a marker without its entry would show readers what was aborted.
        """
        completed = self.producers.completed_by(data, header)
        if completed is not None and completed.aborted:
            try:
                self.segments.note_aborted(segment, completed)
            except AbortedIndexError as error:
                self.go_offline(f"{self.folder} is damaged: {error}")
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline) from error
            self.unsynced.add_names()

    def _make_room(self, size: int, last: int, max_timestamp: int, now_ms: int) -> Segment:
        """The segment that takes a batch of this size: rolled if need be, made if there is none yet.

        Every append comes here that isn't plainly fine: the first ones after a start, a roll or a flush too.
        """
        if self.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)
        if self.cut_unsynced:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.place} is being cut: try again")
        config = self.config
        if size > config.segment_size:
            raise too_large_for_segment(self.place, size, config)
        try:
            segment = self.segments.active or self._wake(now_ms)
            if segment.size and (
                segment.size + size > config.segment_size
                or segment.waited_ms(max_timestamp, now_ms) > config.roll_ms - segment.jitter_ms
                or segment.index_full(config.segment_index_bytes)
                or last > segment.offset_limit
            ):
                segment = self._roll(now_ms)
        except OSError as error:
            raise self._write_failed(None, error) from error
        except BadBatch as error:
            raise self.read_failed(error) from error
        if segment.size == 0:
            segment.date_first(max_timestamp, config.roll_ms)
        if self.unsynced.wrote():
            segment.begin_flush()
            self._store.wrote(self._log)
        elif segment.size + size > segment.flush_from + FLUSH_BYTES:
            segment.begin_flush()
            self._store.flush_soon(self._log)
        segment.limit(config.segment_size, FLUSH_BYTES)
        return segment

    # -- segments are begun

    def touch(self) -> None:
        """Its files changed without an append: the next flush makes that durable."""
        if self.unsynced.wrote():
            self._store.wrote(self._log)

    def _wake(self, now_ms: int) -> Segment:
        """The last segment, opened; the first one, made."""
        segments = self.segments
        if segments:
            segments.open_last(self.ends.log_end)
            return segments[-1]
        self._store.check_not_begun(self._log)
        self._know_nobody()
        self._make_folder()
        return self._begin_segment(self.ends.log_end, now_ms)

    def _know_nobody(self) -> None:
        """Nothing was written yet: later that would have to be found by reading all of it."""
        self._producers = self.producers
        self._epochs = self.epochs

    def _make_folder(self) -> None:
        disk, folder = self._store.disk, self.folder
        new = not disk.exists(folder)
        if new:
            self._store.claim(self._log)
            disk.make_folders(folder)
        self._store.made_folder(self._log)
        self.unsynced.add_folder()  # its name, and whose it is, are made durable with the first write
        self.name_topic(disk, new=new)

    def _begin_segment(self, base: int, now_ms: int) -> Segment:
        segment = self.segments.begin(base, now_ms)
        self.unsynced.add_names()
        return segment

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the last one is empty."""
        if self.segments and self.offline is None:
            segment = self.segments.active or self._wake(now_ms)
            if segment.size:
                self._roll(now_ms)

    def written_ms(self, segment: Segment) -> int:
        """When something was last written to the segment."""
        return self._store.disk.modified_ms(segment.stem + LOG)

    def roll_at_end(self, now_ms: int) -> None:
        """Begin a segment at the log's end, where the last one's batches end before that."""
        active = self.segments.active
        if active is not None and active.base < self.ends.log_end:
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> Segment:
        old = self.segments.active
        assert old is not None
        snapshot = encode_snapshot(self.producers.items())
        self._store.rolls(self._log)
        segment = self._begin_segment(self.ends.log_end, now_ms)
        old.finish_times()
        _logger.debug("%s: segment %d is full, the next begins at offset %d", self.place, old.base, segment.base)
        self.unsynced.seal(old, snapshot)
        self._store.flush_soon(self._log)
        return segment

    def _write_failed(self, segment: Segment | None, error: OSError) -> KafkaError:
        """A write failed. On a full disk its torn rest is cut off and the log stays; else the log goes offline."""
        reason = f"writing to {self.folder} failed: {error}"
        if error.errno in TOO_MANY_FILES:  # nothing could be opened, so nothing was written
            self._store.files.shrink()
            self._store.report(f"{self.place}: {reason}; the log goes on when files may be opened again")
        elif error.errno not in FULL_DISK:
            self.go_offline(reason)
        else:
            try:
                if segment is not None:
                    self._store.files.open(segment).truncate(segment.size)
                    if segment.has_aborted:
                        segment.aborted(self._store.disk).truncate_to(self.ends.log_end)
            except OSError as second:
                self.go_offline(f"{reason}; cutting off the torn write failed too: {second}")
            else:
                if not self._full:  # one line, however many clients try again
                    message = f"{self.place}: {reason}; free some space, the log goes on then"
                    self._store.report(message, level=logging.ERROR)
                self._full = True
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def has_room(self) -> None:
        """Something was written after there had been no room for it."""
        self._full = False
        self._store.report(f"{self.place}: there is room again, the log goes on", level=logging.INFO)
