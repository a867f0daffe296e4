"""What was committed, as anyone was shown it: by a fetch, an acknowledgement, or a node's own high watermark.

Promised of an offset below a high watermark, on whichever broker: it holds the same batch for ever, byte for byte, with
its leader epoch. Promised of an epoch of a leader: its high watermark never falls. Promised by ListOffsets: the end is
never before one that this or an earlier leader has shown.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.batch import BatchHeader, check, iterate, records
from tidelog.wire.errors import KafkaError
from tidelog.wire.topic_partition import TopicPartition


class Shown(NamedTuple):
    """A batch below somebody's high watermark, and whose that was."""

    next_offset: int
    leader_epoch: int
    crc: int
    by: str


@dataclass(slots=True)
class Promised:
    """Of one partition."""

    batches: dict[int, Shown] = field(default_factory=dict[int, Shown])
    """By their base offsets."""
    bases: dict[int, int] = field(default_factory=dict[int, int])
    """The base offset of the batch that an offset is in."""
    values: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Of the records in these batches, markers apart."""
    acknowledged: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """With acks=all."""
    end: int = 0
    """Behind all that was acknowledged or shown."""
    ends: dict[int, int] = field(default_factory=dict[int, int])
    """The greatest high watermark that clients were told in a leader epoch."""
    start_max: int = 0
    """Up to where somebody asked to delete records, or retention may have."""
    leaders: dict[int, int] = field(default_factory=dict[int, int])
    """The broker that took itself for the leader, by leader epoch."""


class Promises:
    """Of one run. `excused` partitions have lost what nobody could have kept, and are looked at no more."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, Promised] = {}
        self.excused: set[TopicPartition] = set()
        self.acknowledged = 0
        self.fetched = 0

    def of(self, place: TopicPartition) -> Promised:
        return self._partitions.setdefault(place, Promised())

    def excuse(self, place: TopicPartition) -> None:
        """All disks that had it lost what they needn't keep."""
        self.excused.add(place)
        self._partitions.pop(place, None)

    # -- ends

    def floor(self, place: TopicPartition, epoch: int) -> int:
        """The greatest high watermark that clients were told by leaders up to this epoch."""
        return max((end for of, end in self.of(place).ends.items() if of <= epoch), default=0)

    def saw_high_watermark(self, place: TopicPartition, epoch: int, told: int, floor: int) -> None:
        """`floor`: what this leader epoch had told when the question was sent."""
        if place in self.excused:
            return
        if told < floor:
            raise Violation(f"{_name(place)}: the high watermark fell from {floor} to {told} in leader epoch {epoch}")
        known = self.of(place)
        known.ends[epoch] = max(told, known.ends.get(epoch, 0))

    def saw_end(self, place: TopicPartition, epoch: int, told: int, floor: int) -> None:
        """An answer of ListOffsets; `floor`: what leaders up to this epoch had told when the question was sent."""
        if place in self.excused:
            return
        if told < floor:
            raise Violation(
                f"{_name(place)} ends at {told} says ListOffsets in leader epoch {epoch}, after {floor} was shown"
            )
        known = self.of(place)
        known.ends[epoch] = max(told, known.ends.get(epoch, 0))

    def saw_leader(self, place: TopicPartition, epoch: int, broker_id: int) -> None:
        before = self.of(place).leaders.setdefault(epoch, broker_id)
        if before != broker_id:
            raise Violation(f"{_name(place)} has two leaders in leader epoch {epoch}, {before} and {broker_id}")

    # -- records

    def saw_acknowledged(self, place: TopicPartition, base_offset: int, values: list[bytes]) -> None:
        """An answer to acks=all."""
        self.acknowledged += len(values)
        if place in self.excused or base_offset < 0:  # a duplicate whose place isn't known any more
            return
        known = self.of(place)
        for offset, value in enumerate(values, base_offset):
            shown = known.values.get(offset, value if offset not in known.bases else None)
            before = known.acknowledged.setdefault(offset, value)
            for other in (shown, before):
                if other != value:
                    raise Violation(f"{_name(place)} acknowledged {value!r} at offset {offset}, which is {other!r}")
        known.end = max(known.end, base_offset + len(values))

    def saw_batches(self, place: TopicPartition, by: str, buffer: bytes, end: int) -> list[BatchHeader]:
        """Whole batches below a high watermark; those that reach beyond `end` are left out."""
        found: list[BatchHeader] = []
        try:
            for header in iterate(buffer):
                if header.next_offset > end:
                    break
                found.append(header)
                if place not in self.excused:
                    self._saw(place, by, buffer, header)
        except KafkaError as error:
            raise Violation(f"{_name(place)}: {by} gives a batch that can't be read: {error.message}") from None
        return found

    def _saw(self, place: TopicPartition, by: str, buffer: bytes, header: BatchHeader) -> None:
        known = self.of(place)
        shown = Shown(header.next_offset, header.leader_epoch, header.crc, by)
        before = known.batches.get(header.base_offset)
        if before is not None and before[:3] == shown[:3]:
            return
        check(buffer, header, len(buffer))
        offsets = range(header.base_offset, header.next_offset)
        other = before or next((known.batches[known.bases[one]] for one in offsets if one in known.bases), None)
        if other is not None:
            raise Violation(
                f"{_name(place)} offsets {header.base_offset} to {header.last_offset}: {by} has a batch of leader "
                f"epoch {header.leader_epoch} where {other.by} has shown another one, of leader "
                f"epoch {other.leader_epoch}"
            )
        known.batches[header.base_offset] = shown
        for offset in offsets:
            known.bases[offset] = header.base_offset
        known.end = max(known.end, header.next_offset)
        if header.control:
            for offset in offsets:
                if offset in known.acknowledged:
                    raise Violation(
                        f"{_name(place)} offset {offset} is a marker: {known.acknowledged[offset]!r} is lost"
                    )
            return
        for record in records(buffer, header):
            value = known.values[record.offset] = record.value or b""
            acknowledged = known.acknowledged.get(record.offset, value)
            if acknowledged != value:
                raise Violation(
                    f"{_name(place)} offset {record.offset} was acknowledged as {acknowledged!r}; {by} shows {value!r}"
                )

    def check_whole(self, place: TopicPartition, start: int, end: int) -> None:
        """At the end the log has all from `start` to `end`, and each batch of it was compared."""
        known = self.of(place)
        if end < known.end:
            raise Violation(f"{_name(place)} ends at {end}, but {known.end} was shown or acknowledged")
        if start > known.start_max:
            raise Violation(f"{_name(place)} starts at {start}, but nobody deleted beyond {known.start_max}")


def _name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"
