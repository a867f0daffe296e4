"""What stays of each batch, by Kafka's rules: offsets, sequences and the range of a batch never change.

- The last batch of a producer that is alive stays, empty if need be, and so does the last one of the cleaned range.
- Tombstones, and markers whose transaction left nothing else behind, get a delete horizon when they are met first: the
  time from which on they may go stands in the batch, in the place of its base timestamp.
- Records below the log's start go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.setting import LONG_MAX
from tidelog.log.compaction.walking import Survivors, newest, redate, survivors
from tidelog.wire.batch import (
    APPEND_TIME_FLAG,
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    KNOWN_FLAGS,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    records,
    seal,
)
from tidelog.wire.compression import compress
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from tidelog.log.compaction.keys import Keys
    from tidelog.log.compaction.source import Found
    from tidelog.log.compaction.target import Target
    from tidelog.log.compaction.task import Task
    from tidelog.log.compaction.transactions import Transactions
    from tidelog.log.producers import Producer

NO_TIMESTAMP = -1


class Kept(NamedTuple):
    """What stays of a batch, in `data`, and the delete horizon that it gets: 0 for none, or for the one that it has."""

    data: bytes
    stays: Survivors
    horizon: int


NOTHING = Kept(b"", Survivors([], 0, False), 0)


class Rewriting:
    """Goes through the batches of a log, from its first segment on, with the keys that were noted."""

    def __init__(self, task: Task, keys: Keys, transactions: Transactions, producers: dict[int, Producer]) -> None:
        self._task = task
        self._keys = keys
        self._transactions = transactions
        self._producers = producers
        self._horizon = min(task.now_ms + task.delete_retention_ms, LONG_MAX)
        self.records_read = 0
        self.records_written = 0

    def rewrite(self, found: Found, target: Target) -> None:
        """Write to `target` what stays of a batch. Raises BadBatch."""
        fields = found.fields
        base, delta, count = fields.base_offset, fields.last_offset_delta, fields.record_count
        self.records_read += count
        kept = self._marker(found, target) if fields.attributes & CONTROL_FLAG else self._data(found)
        if not kept.stays.records:
            if not self._needed(found):
                return
            batch: bytes | bytearray = _emptied(found)
            stamp = fields.max_timestamp
        elif kept.stays.records == count and not kept.horizon:
            batch = found.data[found.at : found.at + found.size]
            stamp = fields.max_timestamp
        else:
            batch, stamp = _built(found, kept)
        self.records_written += kept.stays.records
        target.write(batch, base, base + delta, stamp)

    def _needed(self, found: Found) -> bool:
        """Whether the batch stays when it is empty: for its producer's sequence or epoch, or for the range's end."""
        fields = found.fields
        last_offset = fields.last_offset
        if last_offset + 1 == self._task.end:
            return True
        producer = self._producers.get(fields.producer_id)
        if producer is None:
            return False
        if producer.window:
            return last_offset == producer.window[-1].last_offset
        return bool(fields.attributes & CONTROL_FLAG) and fields.producer_epoch == producer.epoch

    def _data(self, found: Found) -> Kept:
        """What stays of a batch of records."""
        fields, task = found.fields, self._task
        base, attributes, count = fields.base_offset, fields.attributes, fields.record_count
        last_offset = base + fields.last_offset_delta
        if attributes & TRANSACTIONAL_FLAG and self._transactions.data(fields.producer_id, last_offset):
            assert not self._keys.noted(found), f"the batch at {base} was aborted after all"
            return NOTHING
        if last_offset < task.log_start or not count:
            return NOTHING
        horizon = fields.base_timestamp if attributes & DELETE_HORIZON_FLAG else None
        deletes = horizon is not None and horizon <= task.now_ms
        data, start, end = found.records()
        if last_offset > self._keys.latest:  # its keys weren't noted: it isn't this cleaning's
            return Kept(data, Survivors([(start, end)], count, False), 0)
        assert self._keys.noted(found) or last_offset < task.first_dirty, f"the batch at {base} was passed over"
        stays = survivors(data, start, end, self._keys.fates(found, data, start, end), deletes=deletes)
        return Kept(data, stays, self._horizon if stays.tombstones and horizon is None else 0)

    def _marker(self, found: Found, target: Target) -> Kept:
        """The same of a control batch. Its one record stays or goes as a whole."""
        fields, task = found.fields, self._task
        attributes, count = fields.attributes, fields.record_count
        kind = control_type(found) if count else None
        ended = self._transactions.control(fields.producer_id, fields.last_offset, kind)
        if ended.aborted is not None:
            target.aborted(ended.aborted)
        dated = attributes & DELETE_HORIZON_FLAG
        if not count or (ended.empty and dated and fields.base_timestamp <= task.now_ms):
            return NOTHING
        data, start, end = found.records()
        horizon = self._horizon if ended.empty and not dated else 0
        return Kept(data, Survivors([(start, end)], count, False), horizon)


def _built(found: Found, kept: Kept) -> tuple[bytearray, int]:
    """The batch with the records that stay, and its newest timestamp. Offsets inside count from the same base."""
    fields, (data, stays, horizon) = found.fields, kept
    base_timestamp, stamp = fields.base_timestamp, fields.max_timestamp
    attributes = fields.attributes & KNOWN_FLAGS
    if stays.records < fields.record_count and not attributes & APPEND_TIME_FLAG:
        stamp = newest(data, stays.pieces, base_timestamp)
    if horizon:
        body = redate(data, stays.pieces, base_timestamp - horizon)
        base_timestamp, attributes = horizon, attributes | DELETE_HORIZON_FLAG
    else:
        body = b"".join([data[start:end] for start, end in stays.pieces])
    if attributes & CODEC_MASK:
        body = compress(attributes & CODEC_MASK, body)
    return _batch(found, attributes, base_timestamp, stamp, stays.records, body), stamp


def control_type(found: Found) -> int:
    """The type of a control batch's record. Raises BadBatch."""
    header = BatchHeader(*found.fields, found.at)
    try:
        key = next(records(found.data, header)).key or b""
    except (KafkaError, StopIteration) as error:
        raise found.bad(f"no control record: {error}") from None
    return int.from_bytes(key[2:4])


def _emptied(found: Found) -> bytearray:
    """The batch without records: its range, producer and sequence are all that is left."""
    fields = found.fields
    attributes = fields.attributes & (APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG)
    return _batch(found, attributes, NO_TIMESTAMP, fields.max_timestamp, 0, b"")


def _batch(found: Found, attributes: int, base_timestamp: int, stamp: int, count: int, body: bytes) -> bytearray:
    base, _, leader_epoch, _, _, _, delta, _, _, producer_id, epoch, sequence, _ = found.fields
    out = bytearray(HEADER_BYTES) + body
    HEADER.pack_into(
        out,
        0,
        base,
        len(out) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        delta,
        base_timestamp,
        stamp,
        producer_id,
        epoch,
        sequence,
        count,
    )
    seal(out, 0, len(out))
    return out
