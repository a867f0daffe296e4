"""Batches that a partition refused and that their producers send again: what was sent behind them waits for them.

A log takes the batches of a producer that it knows in order. Of one that it doesn't know it takes any, since those
before may have been deleted. So if the first batch is refused while others are behind it on their way (the disk was
full, no descriptor was left, the transaction's coordinator wasn't there), those would be taken, and the first one be
out of order for good. Apache Kafka guards only those against it that wait for the word of a coordinator.

What is behind a batch that was refused lately is to be sent again, too, and isn't called out of order: librdkafka
answers that by a new epoch for all partitions at once, and a batch of another partition whose answer it doesn't have by
then, though the log has it, is sent under the new one and is there twice.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidelog.wire.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    PRODUCER_AT,
    SEQUENCE_MAX,
)
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode

SENT_AGAIN = frozenset(
    (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""Errors of an append whose batch comes again as it was."""
PRODUCERS_MAX = 10_000
"""Producers that one partition waits for; beyond it, those are forgotten that tried longest ago."""
LATELY_MS = 30_000
"""So long after the last try what is behind it is told to come again; then its producer has given it up, and is to know
that there is a gap."""
KEPT_MS = 15 * 60_000
"""How long one is waited for that doesn't try again: far longer than any client has a batch on its way."""

_read_producer = Struct(">qhi").unpack_from
_read_crc = Struct(">I").unpack_from


class Sent(NamedTuple):
    """By whom a batch was sent, and its place in what that one sends."""

    producer_id: int
    epoch: int
    sequence: int


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    at_ms: int


def read_sent(buffer: memoryview, start: int, end: int) -> Sent | None:
    """Of the first batch in [start, end); None where its producer has no id, or there is no batch."""
    if end - start < HEADER_BYTES or buffer[start + MAGIC_AT] != MAGIC:
        return None
    sent = Sent(*_read_producer(buffer, start + PRODUCER_AT))
    return sent if sent.producer_id >= 0 and sent.sequence >= 0 else None


def is_sound(buffer: memoryview, start: int, end: int) -> bool:
    """Whether the header says what its producer wrote: a flipped bit there could make another producer wait."""
    return crc32c(buffer[start + ATTRIBUTES_AT : end]) == _read_crc(buffer, start + CRC_AT)[0]


class Resends:
    """The first batch that was refused, of each producer that has nothing in the log since."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[int, _Refused] = {}  # in the order of their times

    def __len__(self) -> int:
        return len(self._refused)

    def refuse(self, sent: Sent, now_ms: int) -> None:
        """A batch wasn't taken, and will come again."""
        before = self._refused.get(sent.producer_id)
        sequence = sent.sequence
        if before is not None:
            if sent.epoch < before.epoch:
                return
            if sent.epoch == before.epoch and _is_behind(sequence, before.sequence):
                sequence = before.sequence
            del self._refused[sent.producer_id]
        elif len(self._refused) >= PRODUCERS_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[sent.producer_id] = _Refused(sent.epoch, sequence, now_ms)

    def refuse_sound(self, buffer: memoryview, start: int, end: int, now_ms: int) -> None:
        """The same, of a batch as it came; one that is damaged isn't waited for."""
        sent = read_sent(buffer, start, end)
        if sent is not None and is_sound(buffer, start, end):
            self.refuse(sent, now_ms)

    def before(self, sent: Sent) -> int | None:
        """The sequence that must come before this batch, unless the log knows its producer; None: there is none."""
        first = self._refused.get(sent.producer_id)
        if first is None or first.epoch != sent.epoch or not _is_behind(sent.sequence, first.sequence):
            return None
        return first.sequence

    def is_awaited(self, sent: Sent, now_ms: int) -> bool:
        """Whether something must come before this batch that was tried lately."""
        return self.before(sent) is not None and now_ms - self._refused[sent.producer_id].at_ms < LATELY_MS

    def take(self, producer_id: int) -> None:
        """Something of this producer is in the log: from here on that keeps the order."""
        self._refused.pop(producer_id, None)

    def forget(self, now_ms: int) -> None:
        """Give up on those who haven't tried again for long."""
        while self._refused:
            producer_id, first = next(iter(self._refused.items()))
            if now_ms - first.at_ms < KEPT_MS:
                break
            del self._refused[producer_id]


def _is_behind(sequence: int, first: int) -> bool:
    """Sequences begin anew after 2^31-1."""
    return 0 < (sequence - first) & SEQUENCE_MAX < SEQUENCE_MAX // 2
