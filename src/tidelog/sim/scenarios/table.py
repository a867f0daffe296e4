"""What a compacted partition promises: of each key the last acknowledged value can be read, whatever happened.

Each key has one producer, which numbers its records. A reader that went from the start of the log to its end must have
found, of each key, the record that was acknowledged last when it began, or a later one. Where a tombstone was the last,
nothing may be left, but not before delete.retention.ms; and never may an older value come back.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.record import Record


class Keyed(NamedTuple):
    """A record that was sent. `sent_ms`: when it was made, which is before it can be in the log."""

    key: bytes
    number: int
    tombstone: bool
    sent_ms: int


class ReadRecord(NamedTuple):
    """A record that a reader found."""

    offset: int
    identity: bytes
    record: Record


@dataclass(slots=True)
class Table:
    """Of one partition."""

    where: str
    delete_retention_ms: int
    sent: dict[bytes, Keyed] = field(default_factory=dict[bytes, Keyed])
    of_key: dict[bytes, list[Keyed]] = field(default_factory=dict[bytes, list[Keyed]])
    acknowledged: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """The number of each key's last acknowledged record."""
    offsets: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """Where a record was first seen: there it stays."""
    superseded: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """Keys whose last value a reader found though it was deleted: it had gone past it before a cleaning took both that
    value and the tombstone. The next one must not find it."""

    def send(self, identity: bytes, keyed: Keyed) -> None:
        self.sent[identity] = keyed
        self.of_key.setdefault(keyed.key, []).append(keyed)

    def acknowledge(self, identities: list[bytes]) -> None:
        for identity in identities:
            keyed = self.sent[identity]
            self.acknowledged[keyed.key] = max(keyed.number, self.acknowledged.get(keyed.key, -1))

    def check(self, records: list[ReadRecord], as_of: dict[bytes, int], now_ms: int, start: int = 0) -> None:
        """`records` is the whole log, read after `as_of` was what `acknowledged` is; the log began at `start`."""
        numbers: dict[bytes, list[int]] = {}
        before, self.superseded = self.superseded, {}
        latest: dict[bytes, int] = {}
        for offset, identity, record in records:
            keyed = self._known(offset, identity, record)
            producer = identity.split(b":", 1)[0]
            if keyed.number <= latest.get(producer, -1):
                raise Violation(f"{self.where} holds {identity!r} behind record {latest[producer]} of its producer")
            latest[producer] = keyed.number
            numbers.setdefault(keyed.key, []).append(keyed.number)
        for key, number in as_of.items():
            self._check_key(key, number, numbers.get(key, []), now_ms, start)
        for key, number in before.items():
            if number == self.superseded.get(key):
                raise Violation(f"{self.where} gives record {number} of key {key!r} as its last, which was deleted")

    def _known(self, offset: int, identity: bytes, record: Record) -> Keyed:
        keyed = self.sent.get(identity)
        if keyed is None:
            raise Violation(f"{self.where} holds {identity!r} at offset {offset}, which nobody sent")
        if record.key != keyed.key or (record.value is None) != keyed.tombstone:
            raise Violation(f"{self.where} offset {offset}: {identity!r} was {keyed} and is {record}")
        if self.offsets.setdefault(identity, offset) != offset:
            raise Violation(f"{self.where} holds {identity!r} at {offset}, which was at {self.offsets[identity]}")
        return keyed

    def _check_key(self, key: bytes, number: int, numbers: list[int], now_ms: int, start: int) -> None:
        if numbers and numbers[-1] >= number:
            return
        gone = [keyed for keyed in self.of_key[key] if keyed.number >= number and keyed.tombstone]
        if start and not numbers and self._may_be_below(key, number, start):
            return
        deleted = any(now_ms >= keyed.sent_ms + self.delete_retention_ms for keyed in gone)
        if numbers and deleted:
            self.superseded[key] = numbers[-1]
        elif numbers:
            raise Violation(f"{self.where} gives record {numbers[-1]} of key {key!r} as its last, after {number} was")
        elif not deleted:
            kind = "value" if not gone else "tombstone, too young to go"
            raise Violation(f"{self.where} lost record {number} of key {key!r}: its last acknowledged {kind}")

    def _may_be_below(self, key: bytes, number: int, start: int) -> bool:
        """Whether the key's last record may be among those that were deleted from the log's beginning."""
        last = [identity for identity, keyed in self.sent.items() if keyed.key == key and keyed.number >= number]
        return any(self.offsets.get(identity, -1) < start for identity in last)
