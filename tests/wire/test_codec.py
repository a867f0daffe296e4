"""What the codec promises, on messages made up here, byte by byte."""

import dataclasses
import traceback

import pytest

from tidelog.wire.codec import (
    Records,
    SentRecords,
    decode_whole,
    decoder,
    encoder,
    i8,
    i16,
    i32,
    i64,
    message,
    pieces,
    struct,
    uuid,
    wire,
)
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError


@struct
class Leader:
    id: i32 = -1
    epoch: i32 = -1


@struct
class Partition:
    index: i32 = 0
    records: Records | None = None
    leader: Leader = wire("2+", factory=Leader, tag=0)
    note: str | None = wire("2+", default=None, tag=3)


@message(key=900, versions="0-3", flexible="2+")
class Sample:
    name: str | None = wire(default="", nullable="1+")
    count: i16 = 0
    wait_ms: i32 = wire("1+", default=500, ignorable=True)
    session: i64 = wire("2+", default=-1)
    partitions: list[Partition] = wire(factory=list)
    cursor: Leader | None = wire("3+", default=None)
    ids: list[uuid] = wire("3+", factory=list)
    numbers: list[i8] = wire("3+", factory=list)


def test_a_plain_version_has_lengths_of_two_and_four_bytes() -> None:
    value = Sample(name="ab", count=3, partitions=[Partition(index=7, records=memoryview(b"xyz"))])
    assert encoder(Sample, 0)(value) == bytes.fromhex("000261620003000000010000000700000003") + b"xyz"


def test_a_flexible_version_has_varint_lengths_and_tagged_fields() -> None:
    value = Sample(
        name="ab", partitions=[Partition(index=7, leader=Leader(id=1, epoch=2), note="n"), Partition(index=8)]
    )
    tagged = "0200090000000100000002000302026e"
    assert encoder(Sample, 2)(value).hex() == (
        "0361620000000001f4ffffffffffffffff030000000700" + tagged + "00000008000000"
    )


def test_fields_that_a_version_lacks_come_with_their_defaults() -> None:
    sample = decode_whole(Sample, 0, encoder(Sample, 0)(Sample(name="a", wait_ms=9)))
    assert sample == Sample(name="a", wait_ms=500)


def test_a_value_without_a_place_in_the_version_is_refused_unless_it_may_be_ignored() -> None:
    assert encoder(Sample, 0)(Sample(wait_ms=9)) == encoder(Sample, 0)(Sample())
    with pytest.raises(KafkaError, match=r"version 1 has no place for Sample\.session, which is 5") as caught:
        encoder(Sample, 1)(Sample(session=5))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KafkaError, match="Sample has versions 0 to 3, not 4"):
        decoder(Sample, 4)


def test_null_comes_through_where_it_is_allowed_only() -> None:
    assert decode_whole(Sample, 1, encoder(Sample, 1)(Sample(name=None))).name is None
    with pytest.raises(MalformedError, match=r"Sample\.name is null, which it may not be"):
        decoder(Sample, 0)(b"\xff\xff", 0)
    with pytest.raises(MalformedError, match=r"Sample\.partitions is null"):
        decoder(Sample, 0)(b"\x00\x00\x00\x00\xff\xff\xff\xff", 0)


def test_a_nullable_struct_is_marked_by_a_byte() -> None:
    without, with_one = encoder(Sample, 3)(Sample()), encoder(Sample, 3)(Sample(cursor=Leader(id=1, epoch=2)))
    assert without.hex().endswith("01ff010100")
    assert with_one.hex().endswith("0101000000010000000200010100")
    assert decode_whole(Sample, 3, with_one).cursor == Leader(id=1, epoch=2)


def test_unknown_tagged_fields_are_passed_over() -> None:
    encoded = encoder(Sample, 2)(Sample(partitions=[Partition(index=4)]))
    assert encoded.endswith(b"\x00\x00")
    with_unknown = encoded[:-2] + bytes.fromhex("020503aabbcc060001ff0101ee")
    assert decode_whole(Sample, 2, with_unknown) == Sample(partitions=[Partition(index=4)])


def test_a_tagged_field_must_fill_its_size() -> None:
    encoded = encoder(Sample, 2)(Sample(partitions=[Partition()]))
    with pytest.raises(MalformedError, match=r"leader does not fill the size of its tagged field"):
        decoder(Sample, 2)(encoded[:-2] + bytes.fromhex("01000a0000000100000002000000"), 0)
    with pytest.raises(MalformedError, match="claims 1000 bytes"):
        decoder(Sample, 2)(encoded[:-2] + bytes.fromhex("0100e80700"), 0)


def test_lengths_and_counts_are_held_against_the_bytes_that_remain() -> None:
    with pytest.raises(MalformedError, match=r"Sample\.name claims 32767 bytes, 1 remain"):
        decoder(Sample, 0)(b"\x7f\xffa", 0)
    with pytest.raises(MalformedError, match=r"Sample\.partitions claims 2147483647 elements"):
        decoder(Sample, 0)(b"\x00\x00\x00\x00\x7f\xff\xff\xff" + bytes(100), 0)
    with pytest.raises(MalformedError, match="a varint goes on after five bytes"):
        decoder(Sample, 2)(b"\xff" * 20, 0)
    with pytest.raises(MalformedError, match="32767 is the most for a string"):
        decoder(Sample, 2)(b"\xff\xff\x02" + bytes(70_000), 0)


def test_strings_are_utf_8() -> None:
    with pytest.raises(MalformedError, match="not UTF-8"):
        decoder(Sample, 0)(b"\x00\x02\xc3\x28\x00\x00\x00\x00\x00\x00", 0)


def test_what_is_too_long_for_a_string_is_not_sent() -> None:
    for version in (0, 2):
        with pytest.raises(ValueError, match="32767 is the most for a string"):
            encoder(Sample, version)(Sample(name="x" * 32768))


def test_a_uuid_of_another_size_is_not_sent() -> None:
    with pytest.raises(ValueError, match="a uuid has 16 bytes"):
        encoder(Sample, 3)(Sample(ids=[b"short"]))


def test_records_are_a_view_into_the_frame() -> None:
    frame = bytearray(encoder(Sample, 2)(Sample(partitions=[Partition(records=memoryview(b"abc"))])))
    for buffer in (memoryview(frame), bytes(frame)):
        records = decode_whole(Sample, 2, buffer).partitions[0].records
        assert isinstance(records, memoryview)
        assert records == b"abc"
    view = decode_whole(Sample, 2, memoryview(frame)).partitions[0].records
    frame[frame.index(b"abc")] = ord("X")
    assert view == b"Xbc"


def test_bytes_after_the_message_are_the_callers_to_judge() -> None:
    encoded = encoder(Sample, 0)(Sample())
    assert decoder(Sample, 0)(encoded + b"more", 0) == (Sample(), len(encoded))
    with pytest.raises(MalformedError, match=f"ends at byte {len(encoded)}, but there are {len(encoded) + 4}"):
        decode_whole(Sample, 0, encoded + b"more")


@struct
class Answer:
    index: i32 = 0
    records: SentRecords | None = None


@message(key=901, versions="0-1", flexible="1+")
class Answers:
    answers: list[Answer] = wire(factory=list)
    end: i8 = 9


class Slice:
    def __len__(self) -> int:
        return 300


def test_pieces_leave_records_as_they_are() -> None:
    one, two = Slice(), Slice()
    value = Answers(answers=[Answer(index=1, records=one), Answer(records=b""), Answer(), Answer(index=2, records=two)])
    assert pieces(Answers, 1)(value) == [
        bytes.fromhex("0500000001ad02"),
        one,
        bytes.fromhex("0000000000010000000000000000000002ad02"),
        two,
        bytes.fromhex("000900"),
    ]
    assert pieces(Answers, 0)(Answers()) == [bytes.fromhex("0000000009")]


def test_declared_classes_are_slotted_keyword_only_dataclasses() -> None:
    sample = Sample(name="a")
    assert Sample().partitions is not Sample().partitions
    assert dataclasses.replace(sample, count=2) == Sample(name="a", count=2)
    assert sample != Sample(name="b")
    assert sample != "a"
    assert repr(Leader(id=1)) == "Leader(id=1, epoch=-1)"
    with pytest.raises(AttributeError):
        sample.nmae = "b"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Sample("a")  # type: ignore[misc]
    with pytest.raises(TypeError):
        Sample(nmae="a")  # type: ignore[call-arg]


def test_a_bad_value_shows_the_field_in_the_traceback() -> None:
    try:
        encoder(Sample, 0)(Sample(count="three"))  # type: ignore[arg-type]
    except Exception:
        assert "o.count" in traceback.format_exc()
    else:
        pytest.fail("a string was packed as a number")
