"""A look at all records of a batch: what the walk through each of them would find, at a fraction."""

import random
import time

import pytest

from tests.batches import Sent, varint
from tidelog.wire.record import Record, RecordError, encode_record, walk_records
from tidelog.wire.survey import HeadersError, Survey, Wanted, survey

BASE = 1_700_000_000_000
LENGTHS = (0, 1, 63, 64, 200, 9000)
STAMPS = (0, 1, -1, 63, 64, -64, -65, 10_000, 2**40, -(2**40), -BASE - 1)


def maybe(choose: random.Random) -> bytes | None:
    return None if choose.random() < 0.3 else bytes(choose.choice(LENGTHS))


def made(seed: int) -> tuple[bytes, int]:
    choose = random.Random(seed)
    count = choose.randint(1, 90)
    deltas = list(range(count))
    if choose.random() < 0.5:
        choose.shuffle(deltas)
    records = [
        Record(
            key=maybe(choose),
            value=maybe(choose),
            headers=tuple(("n" * choose.choice(LENGTHS), maybe(choose)) for _ in range(choose.choice((0, 0, 1, 3)))),
        )
        for _ in range(count)
    ]
    section = b"".join(
        encode_record(record, delta, choose.choice(STAMPS)) for record, delta in zip(records, deltas, strict=True)
    )
    return section, count


def expected(section: bytes, count: int, wanted: Wanted) -> Survey:
    walked = list(walk_records(section, count, 0, BASE, None))
    keyless = [place for place, record in enumerate(walked) if wanted.keyed and record.key is None]
    misdated = [
        place
        for place, record in enumerate(walked)
        if place not in keyless and record.timestamp != -1 and not wanted.earliest <= record.timestamp <= wanted.latest
    ]
    shown = [(place, None if place in keyless else walked[place].timestamp) for place in sorted(keyless + misdated)]
    numbered = [record.offset for record in walked] == list(range(count))
    newest = max(-1, *(record.timestamp for record in walked))
    return Survey(newest, numbered, len(keyless), len(misdated), shown)


@pytest.mark.parametrize("seed", range(60))
def test_it_finds_what_a_walk_finds(seed: int) -> None:
    section, count = made(seed)
    headers = sum(len(record.headers) for record in walk_records(section, count, 0, BASE, None))
    for wanted in (
        Wanted(),
        Wanted(keyed=True, headers_max=headers),
        Wanted(earliest=BASE - 64, latest=BASE + 64),
        Wanted(keyed=True, earliest=BASE, latest=BASE + 10_000),
    ):
        assert survey(section, count, BASE, wanted) == expected(section, count, wanted)
    if headers:
        with pytest.raises(HeadersError, match=f"more than {headers - 1} headers"):
            survey(section, count, BASE, Wanted(headers_max=headers - 1))


@pytest.mark.parametrize("seed", range(150))
def test_what_is_not_well_formed_is_told_as_a_walk_tells_it(seed: int) -> None:
    """A byte is changed, cut off or added: both take it, and see the same, or neither does."""
    section, count = made(seed % 30)
    choose = random.Random(seed)
    broken = bytearray(section)
    place = choose.randrange(len(broken))
    what = choose.choice(("change", "cut", "add", "count"))
    if what == "change":
        broken[place] = choose.randrange(256)
    elif what == "cut":
        del broken[place]
    elif what == "add":
        broken.insert(place, choose.randrange(256))
    else:
        count += choose.choice((-1, 1))
    try:
        right = expected(bytes(broken), count, Wanted(keyed=True))
    except RecordError:
        with pytest.raises(RecordError):
            survey(broken, count, BASE, Wanted(keyed=True))
    else:
        assert survey(broken, count, BASE, Wanted(keyed=True)) == right


@pytest.mark.parametrize(
    ("section", "count", "words"),
    [
        (b"", 1, "1 records can't be in 0 bytes"),
        (b"\x0e" + bytes(7), -1, "-1 records can't be in 8 bytes"),
        (b"\x01" + bytes(7), 1, "record 0: it claims -1 bytes"),
        (b"\x14" + bytes(7), 1, "record 0: "),
        (Sent(b"v").encode(0) + b"\0" * 7, 1, "7 bytes are left behind the last of 1 records"),
        (Sent(b"v").encode(0) + b"\x0c\0\0\2\0\0\x10\0", 2, "record 1: 8 headers can't be in 0 bytes"),
    ],
)
def test_what_is_wrong_is_said(section: bytes, count: int, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        survey(section, count, BASE, Wanted())


def test_a_million_headers_take_no_longer_than_a_million_records() -> None:
    body = b"\0\0\0\2k\1" + varint(1_000_000) + b"\0\1" * 1_000_000
    began = time.thread_time()
    survey(varint(len(body)) + body, 1, BASE, Wanted(keyed=True))
    assert time.thread_time() - began < 3


def test_headers_are_counted_before_they_are_looked_at() -> None:
    body = b"\0\0\0\2k\1" + varint(50_000_000) + bytes(100_000_000)
    began = time.thread_time()
    with pytest.raises(HeadersError):
        survey(varint(len(body)) + body, 1, BASE, Wanted(headers_max=1_000_000))
    assert time.thread_time() - began < 0.5
