"""Which keys the dirty part of a log has, and what becomes of its records: the first pass of a cleaning.

Records are numbered in the order in which they come; of each number the fate is kept, a byte, and of each key the
number of its last record. The second pass meets the same batches in the same order, and needn't look at a key again.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from tidelog.log.bounds import KEY_BYTES
from tidelog.log.compaction.walking import SUPERSEDED, below, fates_of, note_keys
from tidelog.wire.record import RecordError

if TYPE_CHECKING:
    from tidelog.log.compaction.source import Found


class Keys:
    """Filled by `note`, then asked with `fates`. `latest` is the offset up to which all keys were noted."""

    __slots__ = ("_at", "_bases", "_fates", "_last", "_log_start", "_number", "latest")

    def __init__(self, log_start: int) -> None:
        self._log_start = log_start
        self._last: dict[bytes, int] = {}
        self._fates = bytearray()
        self._bases = array("q")  # of the batches that were noted
        self._at = self._number = 0  # the batch that the second pass comes to next, and its first record's number
        self.latest = -1

    @property
    def memory_bytes(self) -> int:
        """The memory that it takes, about."""
        return len(self._last) * KEY_BYTES + len(self._fates) + 8 * len(self._bases)

    def note(self, found: Found) -> None:
        """A batch of records that were not aborted. Raises BadBatch."""
        data, start, end = found.records()
        base, count = found.fields.base_offset, found.fields.record_count
        self._bases.append(base)
        try:
            if base < self._log_start:
                skipped, start = below(data, start, end, count, self._log_start - base)
                self._fates += bytes((SUPERSEDED,)) * skipped
                count -= skipped
            note_keys(data, start, end, count, self._last, self._fates)
        except RecordError as error:
            raise found.bad(str(error)) from None

    def noted(self, found: Found) -> bool:
        """Whether the batch is the next of those that were noted."""
        return self._at < len(self._bases) and self._bases[self._at] == found.fields.base_offset

    def fates(self, found: Found, data: bytes, start: int, end: int) -> bytes | bytearray:
        """The fates of a batch's records: of one that was noted, or of one before all those. Raises BadBatch."""
        base, count = found.fields.base_offset, found.fields.record_count
        if self.noted(found):
            self._at += 1
            self._number += count
            return self._fates[self._number - count : self._number]
        try:
            if base < self._log_start:
                skipped, start = below(data, start, end, count, self._log_start - base)
                return bytes((SUPERSEDED,)) * skipped + fates_of(data, start, end, count - skipped, self._last)
            return fates_of(data, start, end, count, self._last)
        except RecordError as error:
            raise found.bad(str(error)) from None
