"""Looking for a time in the records of a batch: what the walk through all of them would find, at a fraction."""

import random

import pytest

from tidelog.wire.record import Record, RecordError, encode_record, first_since, walk_records

BASE = 1_700_000_000_000


def made(seed: int) -> tuple[bytes, int]:
    choose = random.Random(seed)
    count = choose.randint(1, 20)
    stamps = [choose.choice((0, 1, -1, 63, 64, -64, -65, 10_000, 2**40, -(2**40))) for _ in range(count)]
    values = [bytes(choose.choice((0, 10, 60, 200, 20_000))) for _ in range(count)]
    section = b"".join(
        encode_record(Record(value=value), 3 * place, stamp)
        for place, (stamp, value) in enumerate(zip(stamps, values, strict=True))
    )
    return section, count


@pytest.mark.parametrize("seed", range(30))
def test_the_first_record_of_a_time_is_the_one_that_a_walk_finds(seed: int) -> None:
    section, count = made(seed)
    walked = list(walk_records(section, count, 0, BASE, None))
    for wanted in {BASE, BASE + 1, BASE - 10, BASE + 2**40 + 1, *(record.timestamp for record in walked)}:
        for least in (-5, 0, 1, 7, 1000):
            expected = [(r.timestamp, r.offset) for r in walked if r.timestamp >= wanted and r.offset >= least]
            assert first_since(section, count, BASE, wanted, least) == (expected[0] if expected else None)


@pytest.mark.parametrize("seed", range(10))
def test_records_that_are_cut_off_or_lie_are_told(seed: int) -> None:
    section, count = made(seed)
    with pytest.raises(RecordError):
        first_since(section[:-1], count + 1, BASE, BASE + 2**50, 0)
    with pytest.raises(RecordError):
        first_since(b"\x01" + section, count, BASE, BASE + 2**50, 0)


def test_a_time_beyond_64_bits_wraps() -> None:
    section = encode_record(Record(), 0, 10)
    assert first_since(section, 1, 2**63 - 5, 0, 0) is None
    assert first_since(section, 1, 2**63 - 5, -(2**63), 0) == (-(2**63) + 5, 0)
