"""What the files of a log tell of its leaders, its producers and what they aborted: loaded when it is first needed.

The newest snapshot, and the batches behind it, have the producers; leader-epoch-checkpoint has the leaders, but for
those that recovery found in the batches above the recovery point.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.log.aborted import AbortedIndexError
from tidelog.log.checkpoints import LEADER_EPOCHS, CheckpointError
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.names import TXN_INDEX
from tidelog.log.producer_snapshot import SnapshotError, encode_snapshot, read_snapshot
from tidelog.log.producers import Completed, Producers
from tidelog.log.scan import HeaderFields, batch_at, batches
from tidelog.wire.batch import CONTROL_FLAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.log.segment import Segment
    from tidelog.log.stored import StoredLog


def load_epochs(log: StoredLog) -> LeaderEpochs:
    """What leader-epoch-checkpoint says; one that is damaged, or was lost, is built again from the batches."""
    path = f"{log.folder}/{LEADER_EPOCHS}"
    try:
        epochs = LeaderEpochs.load(log._around.disk, path)
        if epochs.entries() or not _has_epochs(log):
            return epochs
        log._around.report(f"{path} is missing or empty; reading the leader epochs from the batches")
    except CheckpointError as error:
        log._around.report(f"{error}; reading the leader epochs from the batches")
    epochs = LeaderEpochs()
    for _, _, fields in headers_from(log, 0):
        if fields[2] > epochs.latest:
            epochs.assign(fields[2], fields[0])
    return epochs


def _has_epochs(log: StoredLog) -> bool:
    """Whether the first batch below the recovery point has a leader epoch: then the file was written once."""
    first = next(headers_from(log, 0), None) if log.ends.recovery_point else None
    return first is not None and first[2][2] >= 0 and first[2][0] < log.ends.recovery_point


def find_epochs(log: StoredLog, found: list[tuple[int, int]]) -> None:
    """Epochs above the recovery point stand in the batches only; the file may know others that were cut off."""
    epochs = load_epochs(log)
    epochs.truncate_from_end(log.ends.log_end)
    for epoch, base in found:
        if epoch > epochs.latest and base < log.ends.log_end:
            epochs.assign(epoch, base)
    epochs.truncate_from_start(log.ends.log_start)
    log._epochs = epochs


def headers_from(log: StoredLog, offset: int) -> Iterator[tuple[Segment, int, HeaderFields]]:
    """(segment, position, header) of every batch that ends at `offset` or later."""
    for number in range(log._segment_number(offset), len(log._segments)):
        segment = log._segments[number]
        log.look(segment, number)
        found = log._position(segment, offset)
        if found is not None:
            for pos, fields in batches(log.reader_of(segment), found[0], segment.size, check=False):
                yield segment, pos, fields


def load_producers(log: StoredLog) -> Producers:
    """The producers as of the log's end: from the newest snapshot, and the batches behind it."""
    producers = Producers(log._around.producer_expiration_ms)
    producers.end = log.ends.log_end
    if not log._segments:
        return producers
    start = _restore(log, producers)
    if start < log.ends.log_end:
        before: Segment | None = None
        for segment, pos, fields in headers_from(log, start):
            if segment is not before:
                _keep_for_flush(log, before, producers)
                before = segment
            if fields[9] < 0:
                continue
            if fields[5] & CONTROL_FLAG:
                data, header = batch_at(log.reader_of(segment), pos, fields)
                completed = producers.replay(data, header)
                if completed is not None and completed.aborted:
                    _remember_aborted(log, segment, completed)
            else:
                base, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = fields
                producers.record(producer_id, epoch, sequence, base, base + delta, timestamp, attributes)
    producers.end = log.ends.log_end
    producers.advance_high_watermark(log.ends.durable_end)
    return producers


def _keep_for_flush(log: StoredLog, sealed: Segment | None, producers: Producers) -> None:
    """The producers as of the end of a recovered segment: the next flush writes its snapshot, as one that rolled has.

    A truncation, and a log whose first segments went, begin with such a snapshot.
    """
    if sealed is None:
        return
    log._sealed_unsaved = [
        (segment, encode_snapshot(producers.items()) if segment is sealed and not data else data)
        for segment, data in log._sealed_unsaved
    ]


def check_aborted(log: StoredLog, recovery_point: int) -> None:
    """Transaction indexes up to the recovery point: a damaged one is built again.

    What was ended behind it is added when the producers are loaded, which comes before any reader asks for it. What
    the index says of that isn't trusted: a power loss may have left half of an entry, and zeros for the rest.
    """
    disk = log._around.disk
    for segment in log._segments[log._segment_number(recovery_point) :]:
        if not disk.exists(segment.stem + TXN_INDEX):
            continue
        index = segment.aborted(disk)
        try:
            index.check(segment.base)
            index.truncate_to(recovery_point)
        except AbortedIndexError as error:
            log._around.report(f"{error}; building it again")
            _forget_snapshots(log, segment.base)
            index.reset()


def _forget_snapshots(log: StoredLog, base: int) -> None:
    """Those behind `base` go, so that the batches from there on are read again.

    For good, and before the index is emptied: it is durable again with the next flush, and a broker that dies before
    must begin there, too, or readers would see what was aborted below the snapshot.
    """
    disk = log._around.disk
    for offset in log._snapshots:
        if offset > base:
            with suppress(FileNotFoundError):
                disk.remove(log.snapshot_path(offset))
    disk.sync_folder(log.folder)
    log._snapshots = [offset for offset in log._snapshots if offset <= base]


def _remember_aborted(log: StoredLog, segment: Segment, completed: Completed) -> None:
    """The transaction index lacks what was aborted after its last sync."""
    log.has_aborted = True
    index = segment.aborted(log._around.disk)
    known = index.entries()
    if not known or known[-1].last_offset < completed.last_offset:
        index.append(completed)


def first_snapshot(log: StoredLog) -> int:
    """The offset of the oldest snapshot that tells what went before the log's first batch; 0 where none has to.

    It was made durable with all that it is about: the one before it went only then.
    """
    disk, first = log._around.disk, log._segments[0].base
    for offset in sorted(log._snapshots) if first else ():
        if first <= offset <= log.ends.log_end:
            with suppress(SnapshotError, FileNotFoundError):
                read_snapshot(disk, log.snapshot_path(offset))
                return offset
    return 0


def _restore(log: StoredLog, producers: Producers) -> int:
    """Take over the newest snapshot that can be read; the offset from which batches are to be replayed."""
    disk, first = log._around.disk, log._segments[0].base
    while log._snapshots:
        offset = log._snapshots[-1]
        path = log.snapshot_path(offset)
        if offset < first:  # it knows nothing of what went behind it, markers among that: nothing is known is better
            log._around.report(f"{path} ends before the log's first segment, {first}; its producers are forgotten")
            break
        try:
            entries = read_snapshot(disk, path)
        except FileNotFoundError:
            log._snapshots = log._snapshots[:-1]
            continue
        except SnapshotError as error:
            log._around.report(f"{error}; using the one before it")
            log._snapshots = log._snapshots[:-1]
            disk.remove(path)
            continue
        producers.restore(entries, offset, log._around.clock.now_ms())
        return offset
    return first
