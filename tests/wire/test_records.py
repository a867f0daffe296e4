"""Metadata and control records, as they stand on a log."""

import pytest

from tidelog.wire.errors import MalformedError
from tidelog.wire.records.control import (
    ControlRecord,
    Endpoint,
    EndTxnMarker,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
    decode_control,
    encode_control,
)
from tidelog.wire.records.metadata import (
    NoOpRecord,
    PartitionChangeRecord,
    TopicRecord,
    decode_record,
    encode_record,
)

CONTROL = [
    EndTxnMarker(committed=True, coordinator_epoch=7),
    EndTxnMarker(committed=False, coordinator_epoch=-1),
    LeaderChangeMessage(leader_id=1, voters=[LeaderChangeVoter(voter_id=1)]),
    LeaderChangeMessage(version=1, voters=[LeaderChangeVoter(voter_id=1, voter_directory_id=b"d" * 16)]),
    SnapshotHeaderRecord(last_contained_log_timestamp=5),
    SnapshotFooterRecord(),
    KRaftVersionRecord(kraft_version=1),
    VotersRecord(
        voters=[
            Voter(
                voter_id=1,
                voter_directory_id=b"d" * 16,
                endpoints=[Endpoint(name="CONTROLLER", host="localhost", port=65535)],
                kraft_version_feature=KRaftVersionFeature(max_supported_version=1),
            )
        ]
    ),
]


def test_a_metadata_record_is_framed_by_type_and_version() -> None:
    assert encode_record(TopicRecord(name="t", topic_id=b"i" * 16)) == b"\x01\x02\x00\x02t" + b"i" * 16 + b"\x00"
    assert encode_record(NoOpRecord()) == b"\x01\x14\x00\x00"


def test_a_metadata_record_is_written_in_the_newest_version_unless_told() -> None:
    change = PartitionChangeRecord(partition_id=1, leader=2)
    assert encode_record(change)[2] == 2
    assert encode_record(change, 0)[2] == 0
    assert decode_record(encode_record(change, 0)) == change


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", "cut off after 0 bytes"),
        (b"\x01\x02", "cut off after 2 bytes"),
        (b"\x00\x02\x00", "frame version 0"),
        (b"\x01\x7f\x00", "type 127"),
        (b"\x01\x02\x09", "TopicRecord has version 9"),
        (b"\x01\x14\x00\x00!", "NoOpRecord is followed by 1 bytes"),
    ],
)
def test_what_is_no_metadata_record_is_one_clear_error(value: bytes, error: str) -> None:
    with pytest.raises(MalformedError, match=error):
        decode_record(value)


@pytest.mark.parametrize("record", CONTROL, ids=lambda record: type(record).__name__)
def test_a_control_record_comes_back(record: ControlRecord) -> None:
    key, value = encode_control(record)
    assert decode_control(key, value) == record
    for size in range(len(value)):
        with pytest.raises(MalformedError):
            decode_control(key, value[:size])


def test_markers_look_as_kafka_writes_them() -> None:
    assert encode_control(EndTxnMarker(committed=True, coordinator_epoch=7)) == (
        bytes.fromhex("00000001"),
        bytes.fromhex("000000000007"),
    )


def test_control_records_of_unknown_types_are_passed_over() -> None:
    assert decode_control(bytes.fromhex("00000063"), b"anything") is None
    with pytest.raises(MalformedError, match="has 4 bytes, this one 3"):
        decode_control(b"\0\0\0", b"")
