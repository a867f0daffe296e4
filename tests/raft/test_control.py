"""Batches of the metadata log, written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.raft.control import VoterHistory, control_batch, data_batch, data_values, leader_change, voters_record
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.wire.batch import build, check, iterate, records
from tidelog.wire.record import Record
from tidelog.wire.records.control import KRaftVersionRecord, decode_control

VOTERS = VoterSet((Voter(ReplicaKey(1, b"directory of one"), (Endpoint("CONTROLLER", "localhost", 9093),)),))


@given(st.lists(st.integers(0, 300) | st.sampled_from([8180, 8191, 8192, 20_000]), min_size=1, max_size=150))
def test_values_come_back(sizes: list[int]) -> None:
    values = [bytes([size & 255]) * size for size in sizes]
    batch = data_batch(values, 77, 5, 1234)
    (header,) = iterate(batch)
    check(batch, header, len(batch))
    assert (header.base_offset, header.leader_epoch, header.record_count) == (77, 5, len(values))
    assert data_values(batch, header) == values == [record.value for record in records(batch, header)]
    generic = [Record(offset, 1234, None, value) for offset, value in enumerate(values, 77)]
    assert batch == build(generic, base_offset=77, leader_epoch=5)


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 10, b"key", b"value"),
        Record(0, 10, None, None),
        Record(0, 10, None, b"value", (("name", b"content"),)),
        Record(0, 9, None, b"value"),
    ],
)
def test_records_unlike_ours_are_read_all_the_same(record: Record) -> None:
    batch = build([Record(0, 10, None, b"first"), record._replace(offset=1)])
    (header,) = iterate(batch)
    assert data_values(batch, header) == [b"first", record.value or b""]


@given(st.binary(max_size=60))
def test_bytes_that_are_no_records_are_refused_like_elsewhere(garbage: bytes) -> None:
    batch = data_batch([b"value"], 0, 1, 1)
    broken = batch[:61] + garbage
    (header,) = iterate(bytes(batch))
    header = header._replace(length=len(broken) - 12)
    try:
        expected = [record.value or b"" for record in records(broken, header)]
    except Exception as error:
        with pytest.raises(type(error)):
            data_values(broken, header)
    else:
        assert data_values(broken, header) == expected


def test_control_batch_tells_leader_and_voters() -> None:
    batch = control_batch(
        [leader_change(1, VOTERS, [1]), KRaftVersionRecord(kraft_version=1), voters_record(VOTERS)], 0, 3, 1000
    )
    (header,) = iterate(batch)
    assert header.control
    assert (header.leader_epoch, header.record_count) == (3, 3)
    history = VoterHistory()
    for record in records(batch, header):
        history.note(decode_control(record.key or b"", record.value or b""), in_log=True)
    assert (history.kraft_version, history.voters, history.in_log) == (1, VOTERS, True)


def sets_of(*counts: int) -> list[VoterSet]:
    return [VoterSet(tuple(Voter(ReplicaKey(id, bytes([id]) * 16)) for id in range(1, count + 1))) for count in counts]


def test_voters_that_are_cut_off_the_log_are_taken_back() -> None:
    three, four, five = sets_of(3, 4, 5)
    history = VoterHistory()
    assert (history.voters, history.kraft_version, history.in_log) == (None, 0, False)
    history.note(voters_record(three), in_log=False)
    history.note(KRaftVersionRecord(kraft_version=0), in_log=False)
    for offset, voters in ((10, four), (20, five)):
        history.note(KRaftVersionRecord(kraft_version=1), in_log=True, offset=offset - 1)
        history.note(voters_record(voters), in_log=True, offset=offset)
    assert [history.at(end) for end in (0, 10, 11, 20, 21, 99)] == [
        (0, three),
        (1, three),
        (1, four),
        (1, four),
        (1, five),
        (1, five),
    ]
    history.cut(21)
    assert history.voters == five
    history.cut(20)
    assert (history.voters, history.kraft_version, history.in_log) == (four, 1, True)
    history.cut(9)
    assert (history.voters, history.kraft_version, history.in_log) == (three, 0, False)
    history.cut(0)  # what a checkpoint says stays
    assert history.voters == three


def test_voters_of_what_is_committed_are_kept_as_the_last_word_only() -> None:
    three, four, five = sets_of(3, 4, 5)
    history = VoterHistory()
    for offset, voters in ((-1, three), (10, four), (20, five)):
        history.note(KRaftVersionRecord(kraft_version=offset > 0), in_log=True, offset=offset)
        history.note(voters_record(voters), in_log=True, offset=offset)
    history.forget_before(20)
    assert (history.voters, history.kraft_version) == (five, 1)
    history.cut(20)
    assert (history.voters, history.kraft_version) == (four, 1)
    history.cut(0)
    assert history.voters == four
