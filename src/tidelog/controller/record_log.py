"""Metadata records on raft: one batch where they fit, a metadata transaction over several batches where they don't.

A change over several batches may fail when some of them are written: the disk is full, say. They stay, since other
voters may have fetched them, and they stand behind a BeginTransactionRecord: whatever came next would count as part of
a change that never ended, and be lost with it. So an AbortTransactionRecord is written before anything else is, at once
or, where that fails too, before the next change; until then no change is accepted. Should this node stop leading first,
whoever leads next finds the transaction open in its image and aborts it (`activation.py`), as Kafka's controllers do.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tidelog.controller.bounds import BATCH_BYTES, BATCH_RECORDS
from tidelog.env.slices import Steps, whole
from tidelog.metadata.versions import MV_3_6_IV1, record_version
from tidelog.raft.control import DataRecords, data_records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    Record,
    encode_record,
)

_logger = logging.getLogger(__name__)

RECORDS_A_STEP = 64


class BatchLog(Protocol):
    """What the records are written to: `raft.driver.RaftDriver`."""

    folder: str

    @property
    def epoch(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    def append(self, values: Sequence[bytes], epoch: int, now_ms: int) -> int: ...

    def append_records(self, records: DataRecords, epoch: int, now_ms: int) -> int: ...


class RecordLog:
    """The controller's log, `machine.AppendLog`. `level` is the metadata.version that the next record is written in."""

    __slots__ = ("_level", "_raft", "_refused", "_unfinished")

    def __init__(self, raft: BatchLog, level: Callable[[], int]) -> None:
        self._raft = raft
        self._level = level
        self._unfinished: int | None = None
        """The epoch in which a change was cut off, while the transaction that it began isn't aborted.

        What an earlier epoch left open is in the image, and aborted with the first change of this one.
        """
        self._refused = 0
        """How many changes couldn't be written since the last that could."""

    @property
    def next_offset(self) -> int:
        """Where the first record of the next change will stand; before it, perhaps, the abort of one that failed."""
        return self._raft.next_offset + (self._unfinished == self._raft.epoch)

    def append(self, records: Sequence[Record], epoch: int, now_ms: int) -> int:
        """All of the records or, where it raises, none: also for whoever reads the log later."""
        return whole(self.append_steps(records, epoch, now_ms))

    def append_steps(self, records: Sequence[Record], epoch: int, now_ms: int) -> Steps[int]:
        """As `append`. Nobody else appends meanwhile; who leads may change, and then this raises."""
        level = self._level()
        values: list[bytes] = []
        for count, record in enumerate(records, 1):
            values.append(encode_record(record, record_version(record, level)))
            if not count % RECORDS_A_STEP:
                yield
        batches = list(split(values, level))
        try:
            if self._unfinished == epoch:
                self._abort(epoch, now_ms)
            last = yield from self._write(batches, epoch, now_ms)
        except Exception as error:
            self._failed(error)
            raise
        if self._refused:
            _logger.warning("the metadata can be changed again; %d changes were refused meanwhile", self._refused)
            self._refused = 0
        return last

    def _write(self, batches: Sequence[Sequence[bytes]], epoch: int, now_ms: int) -> Steps[int]:
        last = -1
        for written, batch in enumerate(batches):
            try:
                prepared = yield from data_records(batch)
                last = self._raft.append_records(prepared, epoch, now_ms)
            except Exception as error:
                if written:
                    _logger.error(
                        "a metadata change was cut off after %d of its %d batches (%s): it is aborted, nothing of it"
                        " counts",
                        written,
                        len(batches),
                        error,
                    )
                    self._unfinished = epoch
                    self._try_to_abort(epoch, now_ms)
                raise
        return last

    def _abort(self, epoch: int, now_ms: int) -> None:
        record = AbortTransactionRecord(reason="The change could not be written to its end")
        self._raft.append([encode_record(record, 0)], epoch, now_ms)
        self._unfinished = None

    def _try_to_abort(self, epoch: int, now_ms: int) -> None:
        try:
            self._abort(epoch, now_ms)
        except Exception as error:
            _logger.error("its abort can't be written yet (%s): no change is accepted until it is", error)

    def _failed(self, error: Exception) -> None:
        """Say so: once, not with each change that clients try meanwhile."""
        stored = isinstance(error, OSError) or (
            isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
        )
        if stored:
            if not self._refused:
                _logger.error(
                    "the metadata can't be changed: %s; topics, settings and members of the cluster stay as they are "
                    "until %s can be written again: free some space there, or see to the disk",
                    error,
                    self._raft.folder,
                )
            self._refused += 1


def split(values: Sequence[bytes], level: int) -> Iterator[Sequence[bytes]]:
    """The batches in which to write records that count as one change."""
    small = sum(map(len, values)) <= BATCH_BYTES
    if small and (len(values) <= BATCH_RECORDS or level < MV_3_6_IV1):
        yield values
        return
    if level < MV_3_6_IV1:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "the change is too large for this metadata.version")
    batch: list[bytes] = [encode_record(BeginTransactionRecord(name="Large change"), 0)]
    size = 0
    for value in values:
        batch.append(value)
        size += len(value)
        if size >= BATCH_BYTES or len(batch) >= BATCH_RECORDS:
            yield batch
            batch, size = [], 0
    batch.append(encode_record(EndTransactionRecord(), 0))
    yield batch
