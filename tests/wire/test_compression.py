"""Compression: other people's codecs agree, and no claim makes the broker allocate beyond the limit."""

import gzip
import os
import struct
import tracemalloc
import warnings
from collections.abc import Callable
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.wire.compression import Codec, CompressionError, InflatesTooLarge, compress, decompress

with warnings.catch_warnings():  # kafka-python reads its schemas by a way that Python deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec as kafka_python

ENCODERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: kafka_python.gzip_encode,
    Codec.SNAPPY: kafka_python.snappy_encode,
    Codec.LZ4: kafka_python.lz4_encode,
    Codec.ZSTD: kafka_python.zstd_encode,
}
DECODERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: kafka_python.gzip_decode,
    Codec.SNAPPY: kafka_python.snappy_decode,
    Codec.LZ4: kafka_python.lz4_decode,
    Codec.ZSTD: kafka_python.zstd_decode,
}
SQUEEZING = list(ENCODERS)
texts = st.binary(max_size=500) | st.binary(min_size=1, max_size=20).map(lambda piece: piece * 5000)


@pytest.mark.parametrize("codec", SQUEEZING)
@given(data=texts)
def test_other_clients_inflate_ours_and_we_theirs(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data
    if data:
        assert bytes(DECODERS[codec](compress(codec, data))) == data
        assert bytes(decompress(codec, ENCODERS[codec](data), len(data))) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-7, 1, 19, 22))]
)
def test_every_level_gives_the_same_back(codec: Codec, levels: tuple[int, ...]) -> None:
    data = b"".join(b"%d," % number for number in range(20_000))
    for level in levels:
        assert bytes(decompress(codec, compress(codec, data, level), len(data))) == data


def test_snappy_comes_in_three_framings() -> None:
    data = b"tide" * 20_000
    raw = bytes(cramjam.snappy.compress_raw(data))
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01")
    assert bytes(decompress(Codec.SNAPPY, raw, len(data))) == data
    assert bytes(decompress(Codec.SNAPPY, framed + framed, 2 * len(data))) == data * 2
    blocks, pos = 0, 16
    while pos < len(framed):
        pos += 4 + struct.unpack_from(">i", framed, pos)[0]
        blocks += 1
    assert blocks == 3  # of 32 KB, as the Java client cuts them


def test_lz4_blocks_are_independent_as_the_java_client_demands() -> None:
    framed = compress(Codec.LZ4, b"tide" * 50_000)
    assert framed[:7] == bytes.fromhex("04224d18604082")


def test_lz4_blocks_that_do_not_shrink_are_stored() -> None:
    import random

    data = random.Random(1).randbytes(100_000)
    framed = compress(Codec.LZ4, data)
    assert len(framed) == 7 + 4 + 65536 + 4 + (100_000 - 65536) + 4
    assert bytes(decompress(Codec.LZ4, framed, len(data))) == data


def test_gzip_members_one_behind_the_other_are_one_text() -> None:
    assert bytes(decompress(Codec.GZIP, gzip.compress(b"ab") + gzip.compress(b"cd"), 4)) == b"abcd"
    with pytest.raises(InflatesTooLarge):
        decompress(Codec.GZIP, gzip.compress(b"ab") + gzip.compress(b"cd"), 3)


@pytest.mark.parametrize("codec", [Codec.NONE, *SQUEEZING])
def test_one_byte_more_than_the_limit_is_refused(codec: Codec) -> None:
    data = b"x" * 200_000
    squeezed = compress(codec, data)
    assert bytes(decompress(codec, squeezed, 200_000)) == data
    with pytest.raises(InflatesTooLarge, match="199999 bytes"):
        decompress(codec, squeezed, 199_999)


@pytest.mark.parametrize("codec", SQUEEZING)
def test_a_bomb_is_defused_within_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(50_000_000))
    tracemalloc.start()
    with pytest.raises(InflatesTooLarge):
        decompress(codec, bomb, 1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_500_000


@pytest.mark.parametrize(
    ("codec", "empty"),
    [
        (Codec.GZIP, gzip.compress(b"")),
        (Codec.SNAPPY, b"\0\0\0\1\0"),  # a block of no bytes
        (Codec.SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"),
    ],
    ids=["gzip-members", "snappy-blocks", "snappy-headers"],
)
def test_pieces_that_hold_nothing_are_counted(codec: Codec, empty: bytes) -> None:
    """Each of them takes time, though nothing comes out: 10 MB of them would take minutes."""
    start = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" if codec == Codec.SNAPPY else b""
    assert bytes(decompress(codec, start + empty * 1000, 1 << 20)) == b""
    with pytest.raises(CompressionError, match="1152 pieces"):
        decompress(codec, start + empty * 200_000, 1 << 20)


def test_what_is_behind_a_gzip_member_is_not_copied_with_it() -> None:
    members = gzip.compress(b"x" * 100) * 1000 + gzip.compress(os.urandom(3_000_000), 0)
    tracemalloc.start()
    assert len(decompress(Codec.GZIP, members, 1 << 22)) == 3_100_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_500_000


@pytest.mark.parametrize(
    "claim",
    [
        b"\xff\xff\xff\xff\x0f" + b"x" * 20,  # raw snappy that claims 4 GB
        b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01" + struct.pack(">i", 2**31 - 1) + b"xx",
        b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01" + struct.pack(">i", -2) + b"xx",
        b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01" + struct.pack(">i", 7) + b"\xff\xff\xff\xff\x0fxx",
        b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0",
    ],
)
def test_a_length_that_is_merely_claimed_allocates_nothing(claim: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(CompressionError):
        decompress(Codec.SNAPPY, claim, 1 << 30)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("codec", SQUEEZING)
def test_cut_off_data_is_told(codec: Codec) -> None:
    squeezed = compress(codec, b"some text to squeeze" * 100)
    with pytest.raises(CompressionError, match="corrupt"):
        decompress(codec, squeezed[:-3], 1 << 20)


@pytest.mark.parametrize("codec", SQUEEZING)
@given(data=st.binary(max_size=60))
def test_noise_gives_one_clear_error_or_bytes(codec: Codec, data: bytes) -> None:
    with suppress(CompressionError):
        assert len(decompress(codec, data, 1 << 16)) <= 1 << 16


def test_an_unknown_codec_is_told() -> None:
    with pytest.raises(CompressionError, match="unknown compression codec 5"):
        decompress(5, b"", 1)
    with pytest.raises(CompressionError, match="unknown compression codec 5"):
        compress(5, b"")
