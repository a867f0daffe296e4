"""Frames and the headers in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.wire.errors import MalformedError
from tidelog.wire.frame import FrameReader, frame_end, framed
from tidelog.wire.header import read_header, read_response_header, request_header, response_header
from tidelog.wire.keys import RANGES, ApiKey

EACH_API_VERSION = [(key, version) for key, range_ in RANGES.items() for version in range(range_.min, range_.max + 1)]


@pytest.mark.parametrize("client_id", [None, "", "client-1", "ünïcode"])
def test_a_request_header_comes_back_in_every_version_of_every_api(client_id: str | None) -> None:
    for key, version in EACH_API_VERSION:
        header = request_header(key, version, 77, client_id)
        for buffer in (header + b"body", memoryview(header + b"body")):
            assert read_header(buffer, 0) == (key, version, 77, client_id, len(header))


def test_a_response_header_comes_back_in_every_version_of_every_api() -> None:
    for key, version in EACH_API_VERSION:
        header = response_header(key, version, -5)
        assert read_response_header(header + b"body", 0, key, version) == (-5, len(header))


def test_headers_are_flexible_where_the_api_is() -> None:
    assert request_header(ApiKey.PRODUCE, 8, 1, "c").hex() == "0000000800000001000163"
    assert request_header(ApiKey.PRODUCE, 9, 1, "c").hex() == "000000090000000100016300"
    assert response_header(ApiKey.PRODUCE, 8, 1).hex() == "00000001"
    assert response_header(ApiKey.PRODUCE, 9, 1).hex() == "0000000100"


def test_answers_to_api_versions_never_have_a_tagged_header() -> None:
    for version in range(5):
        assert response_header(ApiKey.API_VERSIONS, version, 1).hex() == "00000001"


def test_tagged_fields_in_a_header_are_passed_over() -> None:
    header = request_header(ApiKey.PRODUCE, 9, 1, "c")[:-1] + bytes.fromhex("010702aabb")
    assert read_header(header, 0).body_pos == len(header)


def test_a_version_that_is_too_new_still_has_a_header() -> None:
    assert read_header(request_header(ApiKey.API_VERSIONS, 99, 1, "c"), 0).version == 99


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (b"", "cut off"),
        (request_header(0, 9, 1, "client")[:9], "cut off"),
        (request_header(0, 9, 1, "client")[:-1], "cut off"),
        (request_header(0, 9, 1, "client")[:-3], "client id claims 6 bytes, 4 remain"),
        (b"\x03\xe7" + request_header(0, 9, 1, "client")[2:], "no API with key 999"),
        (request_header(0, 3, 1, None)[:-2] + b"\x00\x01\xff", "not UTF-8"),
    ],
)
def test_a_bad_header_is_one_clear_error(header: bytes, error: str) -> None:
    with pytest.raises(MalformedError, match=error):
        read_header(header, 0)


@given(contents=st.lists(st.binary(max_size=30), max_size=6), cuts=st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_whole_however_the_bytes_arrive(contents: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(framed(content) for content in contents)
    reader = FrameReader(size_max=30)
    got: list[bytes] = []
    pos = index = 0
    while pos < len(stream):
        size = cuts[index % len(cuts)]
        got += reader.feed(stream[pos : pos + size])
        pos += size
        index += 1
        assert reader.held_bytes < 34
    assert got == contents
    assert reader.held_bytes == 0


def test_a_frame_in_a_buffer_ends_where_its_size_says() -> None:
    buffer = memoryview(b"??" + framed(b"abc") + framed(b"d"))
    assert frame_end(buffer, 2, 5, 10) is None
    assert frame_end(buffer, 2, 7, 10) == 9
    assert frame_end(buffer, 9, len(buffer), 10) == len(buffer)


@pytest.mark.parametrize(
    ("size", "error"),
    [(-1, "a size of -1 bytes"), (-(2**31), "a size of -2147483648"), (101, "claims 101 bytes, 100 is")],
)
def test_an_impossible_size_is_refused_before_anything_is_set_aside(size: int, error: str) -> None:
    start = size.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedError, match=error):
        frame_end(start, 0, 4, 100)
    with pytest.raises(MalformedError, match=error):
        FrameReader(size_max=100).feed(start)
