"""Control batches of the metadata log and its snapshots: who leads, who votes, where a snapshot begins and ends."""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.env.network import Buffer
from tidelog.env.slices import Steps, whole
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.wire import varint
from tidelog.wire.batch import BatchHeader, build, payload, records, whole_batch
from tidelog.wire.record import Record
from tidelog.wire.records import control as wire
from tidelog.wire.records.control import ControlRecord, KRaftVersionRecord, VotersRecord, encode_control

KRAFT_VERSION_MAX = 1
RECORDS_A_STEP = 64


def control_batch(records: Sequence[ControlRecord], base_offset: int, epoch: int, now_ms: int) -> bytearray:
    made: list[Record] = []
    for index, record in enumerate(records):
        key, value = encode_control(record)
        made.append(Record(base_offset + index, now_ms, key, value, ()))
    return build(made, base_offset=base_offset, leader_epoch=epoch, control=True)


class DataRecords(NamedTuple):
    """The records of a data batch to be: what takes the time to make of it, and doesn't depend on its place."""

    total: int
    section: bytes | bytearray

    def batch(self, base_offset: int, epoch: int, now_ms: int) -> bytearray:
        return whole_batch(self.section, self.total, base_offset=base_offset, leader_epoch=epoch, timestamp=now_ms)


def data_batch(values: Sequence[bytes], base_offset: int, epoch: int, now_ms: int) -> bytearray:
    return whole(data_records(values)).batch(base_offset, epoch, now_ms)


def data_records(values: Sequence[bytes]) -> Steps[DataRecords]:
    """Values without keys or headers, all of one time: what `wire.record.encode_record` gives, faster."""
    section = bytearray()
    encode = varint.encode
    for delta, value in enumerate(values):
        length = encode(len(value))
        place = encode(delta)
        # Attributes, timestamp delta, no key in front of the value; no headers behind it.
        section += b"".join(
            (encode(len(place) + len(length) + len(value) + 4), b"\0\0", place, b"\1", length, value, b"\0")
        )
        if delta % RECORDS_A_STEP == RECORDS_A_STEP - 1:
            yield
    return DataRecords(len(values), section)


def data_values(buffer: Buffer, header: BatchHeader) -> list[bytes]:
    """The values of a data batch: what `records` gives, faster where the records are as `data_batch` makes them.

    A start reads hundreds of thousands of them.
    """
    values = _plain_values(bytes(payload(buffer, header)), header.record_count)
    return [record.value or b"" for record in records(buffer, header)] if values is None else values


def _plain_values(data: bytes, count: int) -> list[bytes] | None:
    """None where a record is anything but a value: a key, headers, another timestamp, a length of three bytes."""
    values: list[bytes] = []
    pos = 0
    try:
        for _ in range(count):
            size, pos = data[pos], pos + 1
            if size > 127:
                size, pos = size & 127 | data[pos] << 7, pos + 1
            end = pos + (size >> 1)
            if size > 0x3FFF or data[pos] or data[pos + 1]:  # attributes, timestamp delta
                return None
            pos += 2
            while data[pos] > 127:  # offset delta
                pos += 1
            if data[pos + 1] != 1:  # no key
                return None
            length, pos = data[pos + 2], pos + 3
            if length > 127:
                length, pos = length & 127 | data[pos] << 7, pos + 1
            stop = pos + (length >> 1)
            if (size | length) & 1 or stop + 1 != end or data[stop]:  # nothing negative, no headers, nothing left over
                return None
            values.append(data[pos:stop])
            pos = end
    except IndexError:
        return None
    return values if pos == len(data) else None


def leader_change(leader_id: int, voters: VoterSet, granting: Sequence[int]) -> wire.LeaderChangeMessage:
    return wire.LeaderChangeMessage(
        leader_id=leader_id,
        voters=[wire.LeaderChangeVoter(voter_id=id) for id in sorted(voters.ids)],
        granting_voters=[wire.LeaderChangeVoter(voter_id=id) for id in granting],
    )


def voters_record(voters: VoterSet) -> VotersRecord:
    feature = wire.KRaftVersionFeature(min_supported_version=0, max_supported_version=KRAFT_VERSION_MAX)
    return VotersRecord(
        voters=[
            wire.Voter(
                voter_id=voter.key.id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[wire.Endpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
                kraft_version_feature=feature,
            )
            for voter in voters.voters
        ]
    )


def voter_set(record: VotersRecord) -> VoterSet:
    return VoterSet(
        tuple(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
            )
            for voter in record.voters
        )
    )


class VoterHistory:
    """The voters and the kraft.version as the control records of the log have them, by offset.

    The last record counts as soon as it is in the log, committed or not (KIP-853): majorities of two sets that differ
    by one voter share one, and a leader changes one at a time. When the log is cut, what it said before counts again.
    """

    def __init__(self) -> None:
        self._voters: list[tuple[int, VoterSet, bool]] = []
        self._versions: list[tuple[int, int]] = []

    def at(self, end: int) -> tuple[int, VoterSet | None]:
        """The kraft.version and the voters as they were below `end`: what a checkpoint of that names."""
        version = next((version for offset, version in reversed(self._versions) if offset < end), 0)
        return version, next((voters for offset, voters, _ in reversed(self._voters) if offset < end), None)

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else 0

    @property
    def voters(self) -> VoterSet | None:
        return self._voters[-1][1] if self._voters else None

    @property
    def in_log(self) -> bool:
        """Whether the log, and not only the checkpoint that the folder was formatted with, names the voters."""
        return bool(self._voters) and self._voters[-1][2]

    @property
    def voters_before(self) -> VoterSet | None:
        """Who voted before that, where it isn't all in a checkpoint: the record may be taken back."""
        return self._voters[-2][1] if len(self._voters) > 1 else None

    @property
    def voters_offset(self) -> int:
        """Where the record stands that names the voters; -1 where none does."""
        return self._voters[-1][0] if self._voters else -1

    def begin_behind(self, records: Sequence[ControlRecord], end: int) -> None:
        """The log begins behind a checkpoint now, which says this of all below `end`."""
        self._voters.clear()
        self._versions.clear()
        for record in records:
            self.note(record, in_log=end > 0, offset=end - 1)

    def note(self, record: ControlRecord | None, *, in_log: bool, offset: int = -1) -> None:
        """A control record that stands at `offset`, or in a checkpoint of what is up to there."""
        if isinstance(record, KRaftVersionRecord):
            self._versions.append((offset, record.kraft_version))
        elif isinstance(record, VotersRecord):
            self._voters.append((offset, voter_set(record), in_log))

    def cut(self, end: int) -> None:
        """The log ends at `end` now. What a checkpoint says stays: what is in one is never cut."""
        while len(self._voters) > 1 and self._voters[-1][0] >= end:
            self._voters.pop()
        while len(self._versions) > 1 and self._versions[-1][0] >= end:
            self._versions.pop()

    def forget_before(self, start: int) -> None:
        """All below `start` is committed: of what was said there, the last word is enough."""
        while len(self._voters) > 1 and self._voters[1][0] < start:
            del self._voters[0]
        while len(self._versions) > 1 and self._versions[1][0] < start:
            del self._versions[0]
