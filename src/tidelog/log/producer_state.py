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
from tidelog.log.names import OFFSET_INDEX, TXN_INDEX
from tidelog.log.producer_snapshot import SnapshotError, encode_snapshot, read_snapshot
from tidelog.log.producers import Completed, Producers
from tidelog.log.scan import HeaderFields, RawFields, batch_at, raw_batches
from tidelog.wire.batch import CONTROL_FLAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.log.ends import Ends
    from tidelog.log.segment import Segment
    from tidelog.log.segments import Segments
    from tidelog.log.snapshots import Snapshots
    from tidelog.log.unsynced import Unsynced


def load_epochs(segments: Segments, recovery_point: int) -> LeaderEpochs:
    """What leader-epoch-checkpoint says; one that is damaged, or was lost, is built again from the batches."""
    path = f"{segments.folder.folder}/{LEADER_EPOCHS}"
    try:
        epochs = LeaderEpochs.load(segments.around.disk, path)
        if epochs.entries() or not _has_epochs(segments, recovery_point):
            return epochs
        if segments.around.disk.exists(segments[0].stem + OFFSET_INDEX):  # else nothing was ever saved (`may_be_lean`)
            segments.around.report(f"{path} is missing or empty; reading the leader epochs from the batches")
    except CheckpointError as error:
        segments.around.report(f"{error}; reading the leader epochs from the batches")
    epochs = LeaderEpochs()
    for _, _, (base, _, leader_epoch, *_) in headers_from(segments, 0):
        if leader_epoch > epochs.latest:
            epochs.assign(leader_epoch, base)
    return epochs


def _has_epochs(segments: Segments, recovery_point: int) -> bool:
    """Whether the first batch below the recovery point has a leader epoch: then the file was written once."""
    first = next(headers_from(segments, 0), None) if recovery_point else None
    if first is None:
        return False
    base, _, leader_epoch, *_ = first[2]
    return leader_epoch >= 0 and base < recovery_point


def find_epochs(segments: Segments, ends: Ends, segments_end: int, found: list[tuple[int, int]]) -> LeaderEpochs:
    """Epochs above the recovery point stand in the batches only; the file may know others that were cut off.

    `segments_end` is where the log ended before the journal added to it. Apache Kafka, where it led the log meanwhile,
    noted its epoch there without having written a batch.
    """
    epochs = load_epochs(segments, ends.recovery_point)
    epochs.truncate_from_end(segments_end)
    for epoch, base in found:
        if epoch > epochs.latest and base < ends.log_end:
            epochs.assign(epoch, base)
    epochs.truncate_from_start(ends.log_start)
    return epochs


def headers_from(segments: Segments, offset: int) -> Iterator[tuple[Segment, int, RawFields]]:
    """(segment, position, header) of every batch that ends at `offset` or later."""
    for number in range(segments.number(offset), len(segments)):
        segment = segments[number]
        segments.look(segment, number)
        found = segments.position(segment, offset)
        if found is not None:
            for pos, fields in raw_batches(segments.reader_of(segment), found[0], segment.size, check=False):
                yield segment, pos, fields


def load_producers(segments: Segments, snapshots: Snapshots, unsynced: Unsynced, ends: Ends) -> Producers:
    """The producers as of the log's end: from the newest snapshot, and the batches behind it.

    Sealed segments that wait for the flush are given their snapshots, as those that rolled have. A truncation, and a
    log whose first segments went, begin with such a snapshot. Which of the transactions that ended are committed is
    the high watermark's to say, which a replica knows (`Producers.recall`).
    """
    producers = Producers(segments.around.producer_expiration_ms)
    producers.end = ends.log_end
    if not segments:
        return producers
    start = _restore(segments, snapshots, producers)
    if start < ends.log_end:
        now_ms = segments.around.clock.now_ms()  # what isn't in a snapshot yet was written shortly before the end
        before: Segment | None = None
        waiting = unsynced.bases
        for segment, pos, fields in headers_from(segments, start):
            if segment is not before:
                if before is not None and before.base in waiting:
                    unsynced.know_producers(before, encode_snapshot(producers.items()))
                before = segment
            base, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = fields
            if producer_id < 0:
                continue
            if attributes & CONTROL_FLAG:
                data, header = batch_at(segments.reader_of(segment), pos, HeaderFields(*fields))
                completed = producers.replay(data, header)
                if completed is not None and completed.aborted:
                    _remember_aborted(segments, segment, completed)
            else:
                producers.record(producer_id, epoch, sequence, base, base + delta, timestamp, attributes, now_ms)
    producers.end = ends.log_end
    producers.loaded(ends.durable_end)
    return producers


def check_aborted(segments: Segments, snapshots: Snapshots, recovery_point: int) -> None:
    """Transaction indexes up to the recovery point: a damaged one is built again.

    What was ended behind it is added when the producers are loaded, which comes before any reader asks for it. What
    the index says of that isn't trusted: a power loss may have left half of an entry, and zeros for the rest.
    """
    disk = segments.around.disk
    for segment in segments.from_offset(recovery_point):
        if not disk.exists(segment.stem + TXN_INDEX):
            continue
        index = segment.aborted(disk)
        try:
            index.check(segment.base)
            index.truncate_to(recovery_point)
        except AbortedIndexError as error:
            segments.around.report(f"{error}; building it again")
            _forget_snapshots(segments, snapshots, segment.base)
            index.reset()


def _forget_snapshots(segments: Segments, snapshots: Snapshots, base: int) -> None:
    """Those behind `base` go, so that the batches from there on are read again.

    For good, and before the index is emptied: it is durable again with the next flush, and a broker that dies before
    must begin there, too, or readers would see what was aborted below the snapshot.
    """
    disk = segments.around.disk
    snapshots.cut(disk, segments.folder, base)
    disk.sync_folder(segments.folder.folder)


def _remember_aborted(segments: Segments, segment: Segment, completed: Completed) -> None:
    """The transaction index lacks what was aborted after its last sync."""
    known = segment.aborted(segments.around.disk).entries()
    if not known or known[-1].last_offset < completed.last_offset:
        segments.note_aborted(segment, completed)


def first_snapshot(segments: Segments, snapshots: Snapshots, log_end: int) -> int:
    """The offset of the oldest snapshot that tells what went before the log's first batch; 0 where none has to.

    It was made durable with all that it is about: the one before it went only then.
    """
    disk, first = segments.around.disk, segments[0].base
    for offset in snapshots if first else ():
        if first <= offset <= log_end:
            with suppress(SnapshotError, FileNotFoundError):
                read_snapshot(disk, segments.folder.snapshot_path(offset))
                return offset
    return 0


def _restore(segments: Segments, snapshots: Snapshots, producers: Producers) -> int:
    """Take over the newest snapshot that can be read; the offset from which batches are to be replayed."""
    disk, first = segments.around.disk, segments[0].base
    while (offset := snapshots.newest) is not None:
        path = segments.folder.snapshot_path(offset)
        if offset < first:  # it knows nothing of what went behind it, markers among that: nothing is known is better
            segments.around.report(f"{path} ends before the log's first segment, {first}; its producers are forgotten")
            break
        try:
            entries = read_snapshot(disk, path)
        except FileNotFoundError:
            snapshots.forget((offset,))
            continue
        except SnapshotError as error:
            segments.around.report(f"{error}; using the one before it")
            snapshots.forget((offset,))
            disk.remove(path)
            continue
        producers.restore(entries, offset, segments.around.clock.now_ms())
        return offset
    return first
