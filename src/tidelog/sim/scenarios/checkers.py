"""What the broker has promised, gathered from every answer it gave, and whether it keeps it.

Promised of an offset below the high watermark, as soon as any client was shown it by Fetch, ListOffsets or an answer to
acks=all: it holds the same record for ever. Promised of an idempotent producer: each record once, in order.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.wire.topic_partition import TopicPartition


class Violation(Exception):
    """The broker broke a promise. Says which, where and when."""


@dataclass(slots=True)
class PartitionHistory:
    """What clients know of one partition."""

    values: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Promised: shown by Fetch, or acknowledged with acks=all."""
    written: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Acknowledged with acks=1: survives the process, not the power."""
    lasting: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Acknowledged with acks=all by a topic that counts on the page cache at other times: there for good."""
    written_end: int = 0
    """Behind the last of those: ListOffsets, which waits for what is written, may tell no less."""
    end: int = 0
    """The greatest high watermark that anyone was shown."""
    start: int = 0
    """The greatest low watermark that DeleteRecords answered with: what is below it stays deleted."""
    start_max: int = 0
    """Up to where someone asked to delete records: what is at it or above must stay."""
    dates: dict[int, int] = field(default_factory=dict[int, int])
    """Timestamps of records that were fetched, where retention is watched."""


class History:
    """Everything that clients were told.

    `powerless` topics count on the page cache (tidelog.durability=os). `forgetful` ones are in memory: their records go
    with the process, but no offset is ever given twice. `retained_ms`: topics whose records go when they are older; of
    those with -1, when there are too many.
    """

    def __init__(
        self,
        powerless: frozenset[str] = frozenset(),
        forgetful: frozenset[str] = frozenset(),
        retained_ms: Mapping[str, int] | None = None,
    ) -> None:
        self.powerless = powerless
        self.forgetful = forgetful
        self.retained_ms = retained_ms or {}
        self.losses = 0
        self._partitions: dict[TopicPartition, PartitionHistory] = {}
        self.acknowledged = 0
        self.fetched = 0

    def of(self, topic: str, partition: int) -> PartitionHistory:
        return self._partitions.setdefault((topic, partition), PartitionHistory())

    def partitions(self) -> list[TopicPartition]:
        return sorted(self._partitions)

    def saw_acknowledged(self, topic: str, partition: int, base_offset: int, values: list[bytes]) -> None:
        """An answer to acks=all."""
        known = self.of(topic, partition)
        for offset, value in enumerate(values, base_offset):
            self._agree(topic, partition, known, offset, value, "acknowledged")
        known.end = max(known.end, base_offset + len(values))
        self.acknowledged += len(values)

    def saw_written(self, topic: str, partition: int, base_offset: int, values: list[bytes]) -> None:
        """An answer to acks=1."""
        known = self.of(topic, partition)
        for offset, value in enumerate(values, base_offset):
            before = known.values.get(offset, value)
            if before != value:
                raise Violation(f"{topic}-{partition} wrote {value!r} at offset {offset}, where {before!r} was shown")
            known.written[offset] = value
        known.written_end = max(known.written_end, base_offset + len(values))

    def saw_lasting(self, topic: str, partition: int, base_offset: int, values: list[bytes]) -> None:
        """An answer to acks=all, while the topic was known to be synced."""
        self.saw_acknowledged(topic, partition, base_offset, values)
        self.of(topic, partition).lasting.update(enumerate(values, base_offset))

    def saw_fetched(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        known = self.of(topic, partition)
        self._agree(topic, partition, known, offset, value, "fetched")
        before = known.written.get(offset, value)
        if before != value:
            raise Violation(
                f"{topic}-{partition} gives {value!r} at offset {offset}, where {before!r} was acknowledged (acks=1)"
            )
        known.end = max(known.end, offset + 1)
        self.fetched += 1

    def saw_end(self, topic: str, partition: int, end: int, floor: int, by: str) -> None:
        """A high watermark; `floor` is the greatest that anyone had been shown when the question was sent."""
        if end < floor:
            raise Violation(f"{topic}-{partition} ends at {end} says {by}, after {floor} was shown, or acknowledged")
        known = self.of(topic, partition)
        known.end = max(known.end, end)

    def saw_start(self, topic: str, partition: int, start: int, floor: int) -> None:
        """A log start; `floor` is what was deleted for sure when the question was sent."""
        known = self.of(topic, partition)
        if start < floor:
            raise Violation(f"{topic}-{partition} starts at {start}, though records below {floor} were deleted")
        if start > known.start_max and topic not in self.forgetful and topic not in self.retained_ms:
            raise Violation(f"{topic}-{partition} starts at {start}, but nobody deleted beyond {known.start_max}")
        known.end = max(known.end, start)

    def saw_retained(self, topic: str, partition: int, start: int, floor: int, now_ms: int) -> None:
        """A log start of a topic with retention; `floor` is the greatest that was told when the question was sent."""
        self.saw_start(topic, partition, start, floor)
        known, retained_ms = self.of(topic, partition), self.retained_ms[topic]
        for offset in [offset for offset in known.dates if known.start_max <= offset < start]:
            age_ms = now_ms - known.dates[offset]
            if retained_ms >= 0 and age_ms <= retained_ms:
                raise Violation(f"{topic}-{partition} let go of offset {offset} after {age_ms} ms, not {retained_ms}")
        known.start = max(known.start, start)

    def saw_deleted(self, topic: str, partition: int, low_watermark: int, asked: int) -> None:
        """An answer to DeleteRecords."""
        self.saw_start(topic, partition, low_watermark, asked)
        known = self.of(topic, partition)
        known.start = max(known.start, low_watermark)

    def may_be_gone(self, topic: str, partition: int, offset: int) -> bool:
        """Whether it is right that the offset can't be read any more."""
        if topic in self.forgetful or topic in self.retained_ms:
            return True
        return offset < self.of(topic, partition).start_max

    def _agree(self, topic: str, partition: int, known: PartitionHistory, offset: int, value: bytes, how: str) -> None:
        before = known.values.setdefault(offset, known.lasting.get(offset, value))
        if before != value:
            raise Violation(f"{topic}-{partition} offset {offset} was {before!r} and is {how} as {value!r} now")

    def cache_was_lost(self) -> None:
        """The power went, or a sync failed: what counted on the page cache may be gone."""
        self.losses += 1
        for (topic, _), known in self._partitions.items():
            if topic in self.powerless:
                known.values.clear()
                known.start = known.end = 0  # a log that was forgotten as a whole begins anew
            if topic in self.retained_ms:
                known.start = 0  # what retention let go of may come back: on a full disk it can't write down its start
            if topic not in self.forgetful:
                known.written.clear()
                known.written_end = 0

    def check_whole(self, topic: str, partition: int, start: int, values: list[bytes]) -> None:
        """At the end: `values` is the whole log, from offset `start` to its end."""
        known = self.of(topic, partition)
        where = f"{topic}-{partition}"
        end = start + len(values)
        if end < known.end:
            raise Violation(f"{where} ends at {end}, but {known.end} was shown")
        for shown, how in (
            (known.values, "shown"),
            (known.written, "acknowledged (acks=1)"),
            (known.lasting, "acknowledged, and synced,"),
        ):
            for offset, value in shown.items():
                if offset >= end:
                    raise Violation(f"{where} lost offset {offset}, {how} as {value!r}")
                if offset >= start and values[offset - start] != value:
                    now = values[offset - start]
                    raise Violation(f"{where} offset {offset} was {how} as {value!r} and is {now!r} now")


def check_numbered(
    where: str, values: list[bytes], producer: str, *, once: bool, whole: bool = True, connections: Sequence[int] = ()
) -> None:
    """A producer's records, numbered from 0, come in order; `once` (idempotent): each exactly once, without a gap.

    Not `whole`: the first ones were deleted. `connections`: the first number on each further one, in whose place others
    may come that were still on their way on the one before.
    """
    prefix = f"{producer}:".encode()
    numbers = [int(value.split(b":", 2)[1]) for value in values if value.startswith(prefix)]
    if once:
        for place, number in enumerate(numbers, 0 if whole or not numbers else numbers[0]):
            if number != place:
                raise Violation(f"{where} holds record {number} of {producer} where {place} comes next")
    last: dict[int, int] = {}
    for number in numbers:
        connection = bisect_right(connections, number)
        before = last.get(connection, -1)
        if number <= before:
            raise Violation(f"{where} holds record {number} of {producer} behind its record {before}")
        last[connection] = number
