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
from tidelog.log.producer_snapshot import SnapshotError, read_snapshot
from tidelog.log.producers import Completed, Producers
from tidelog.log.scan import HeaderFields, batch_at, batches
from tidelog.wire.batch import CONTROL_FLAG, BatchHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.log.log import Log
    from tidelog.log.reading import ReadableLog
    from tidelog.log.segment import Segment

WINDOW_BYTES = 32 * 1024 * 1024
WINDOW_RECORDS = 200_000
"""How far back before a snapshot its producers' last five batches are looked for; the snapshot has one of them."""


def load_epochs(log: Log) -> LeaderEpochs:
    """What leader-epoch-checkpoint says; a damaged one is built again from the batches."""
    path = f"{log.folder}/{LEADER_EPOCHS}"
    try:
        return LeaderEpochs.load(log._store.disk, path)
    except CheckpointError as error:
        log._store.report(f"{error}; reading the leader epochs from the batches")
    epochs = LeaderEpochs()
    for _, _, fields in headers_from(log, 0):
        if fields[2] > epochs.latest:
            epochs.assign(fields[2], fields[0])
    return epochs


def find_epochs(log: Log, found: list[tuple[int, int]]) -> None:
    """Epochs above the recovery point stand in the batches only; the file may know others that were cut off."""
    epochs = load_epochs(log)
    epochs.truncate_from_end(log.log_end)
    for epoch, base in found:
        if epoch > epochs.latest and base < log.log_end:
            epochs.assign(epoch, base)
    epochs.truncate_from_start(log.log_start)
    log._epochs = epochs


def headers_from(log: ReadableLog, offset: int) -> Iterator[tuple[Segment, int, HeaderFields]]:
    """(segment, position, header) of every batch that ends at `offset` or later."""
    for number in range(log._segment_number(offset), len(log._segments)):
        segment = log._segments[number]
        log.look(segment, number)
        found = log._position(segment, offset)
        if found is not None:
            for pos, fields in batches(log.file_of(segment), found[0], segment.size, check=False):
                yield segment, pos, fields


def load_producers(log: Log) -> Producers:
    """The producers as of the log's end: from the newest snapshot, and the batches behind it."""
    producers = Producers(log._store.producer_expiration_ms)
    producers.end = log.log_end
    if not log._segments:
        return producers
    start = _restore(log, producers)
    if start < log.log_end:
        for segment, pos, fields in headers_from(log, start):
            if fields[9] < 0:
                continue
            if fields[5] & CONTROL_FLAG:
                data, header = batch_at(log.file_of(segment), pos, fields)
                completed = producers.replay(data, header)
                if completed is not None and completed.aborted:
                    _remember_aborted(log, segment, completed)
            else:
                producers.replay(b"", BatchHeader(*fields, 0))
    producers.end = log.log_end
    producers.advance_high_watermark(log.durable_end)
    return producers


def check_aborted(log: Log, recovery_point: int) -> None:
    """Transaction indexes up to the recovery point: a damaged one is built again.

    What was ended behind it is added when the producers are loaded, which comes before any reader asks for it. What
    the index says of that isn't trusted: a power loss may have left half of an entry, and zeros for the rest.
    """
    disk = log._store.disk
    for segment in log._segments[log._segment_number(recovery_point) :]:
        if not disk.exists(segment.stem + TXN_INDEX):
            continue
        index = segment.aborted(disk)
        try:
            index.check(segment.base)
            index.truncate_to(recovery_point)
        except AbortedIndexError as error:
            log._store.report(f"{error}; building it again")
            _forget_snapshots(log, segment.base)
            index.reset()


def _forget_snapshots(log: Log, base: int) -> None:
    """Those behind `base` go, so that the batches from there on are read again.

    For good, and before the index is emptied: it is durable again with the next flush, and a broker that dies before
    must begin there, too, or readers would see what was aborted below the snapshot.
    """
    disk = log._store.disk
    for offset in log._snapshots:
        if offset > base:
            with suppress(FileNotFoundError):
                disk.remove(log.snapshot_path(offset))
    disk.sync_folder(log.folder)
    log._snapshots = [offset for offset in log._snapshots if offset <= base]


def _remember_aborted(log: Log, segment: Segment, completed: Completed) -> None:
    """The transaction index lacks what was aborted after its last sync."""
    log.has_aborted = True
    index = segment.aborted(log._store.disk)
    known = index.entries()
    if not known or known[-1].last_offset < completed.last_offset:
        index.append(completed)


def _restore(log: Log, producers: Producers) -> int:
    """Take over the newest snapshot that can be read; the offset from which batches are to be replayed."""
    disk = log._store.disk
    while log._snapshots:
        offset = log._snapshots[-1]
        path = log.snapshot_path(offset)
        try:
            entries = read_snapshot(disk, path)
        except FileNotFoundError:
            log._snapshots = log._snapshots[:-1]
            continue
        except SnapshotError as error:
            log._store.report(f"{error}; using the one before it")
            log._snapshots = log._snapshots[:-1]
            disk.remove(path)
            continue
        producers.restore(entries, offset, log._store.clock.now_ms())
        if len(producers):
            producers.refill_windows(_headers_before(log, offset))
        return offset
    return log._segments[0].base


def _headers_before(log: Log, offset: int) -> Iterator[BatchHeader]:
    """The headers of the batches before `offset`, as far back as the bounds of the window allow."""
    number = log._segment_number(max(offset - WINDOW_RECORDS, log._segments[0].base))
    last = log._segment_number(offset)
    sizes = [log.look(log._segments[n], n) for n in range(number, last + 1)]
    while number < last and sum(sizes[1:]) >= WINDOW_BYTES:
        number += 1
        del sizes[0]
    for segment in log._segments[number : last + 1]:
        from_offset = max(offset - WINDOW_RECORDS, segment.base)
        found = log._position(segment, from_offset)
        if found is None:
            continue
        start = max(found[0], log.indexes(segment).floor(segment.size - WINDOW_BYTES))
        for _, fields in batches(log.file_of(segment), start, segment.size, check=False):
            if fields[0] >= offset:
                return
            yield BatchHeader(*fields, 0)
