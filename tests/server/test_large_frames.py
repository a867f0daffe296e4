"""Frames that have a buffer of their own: when they get one, what they wait for, and that none is kept behind them."""

import pytest

from tests.server.test_connection import Pair, framed, pair  # noqa: F401 - a fixture
from tidelog.server.bounds import KEPT_BYTES_MAX, LARGE_FRAME_BYTES

MEGABYTE = 1 << 20


def read_ahead(pair: Pair) -> None:  # noqa: F811
    """A frame of nearly a megabyte came, so that the next one is received into a buffer as large."""
    pair.send(framed(b"now:" + b"a" * (MEGABYTE - 100)))
    assert pair.answers() == [b"a" * (MEGABYTE - 100)]
    assert pair.host.buffers.lent_bytes == 0


@pytest.mark.parametrize(("came", "lent"), [(3, 0), (4, MEGABYTE)])
def test_behind_a_large_frame_the_next_has_its_buffer_as_soon_as_its_length_came(
    pair: Pair,  # noqa: F811
    came: int,
    lent: int,
) -> None:
    read_ahead(pair)
    frame = framed(b"now:" + b"b" * (MEGABYTE - 99))  # the last byte of its length is another one
    pair.send(frame[:came])
    assert pair.connection.half_frame
    assert pair.host.buffers.lent_bytes == lent
    pair.send(frame[came:])
    assert pair.answers() == [frame[8:]]
    assert pair.host.buffers.lent_bytes == 0


def test_whatever_comes_shows_that_the_client_is_there_and_its_end_does_not(pair: Pair) -> None:  # noqa: F811
    large = framed(b"none:" + b"l" * MEGABYTE)
    assert pair.connection.stirred(), "it is new"
    for came in (b"\0", framed(b"none:")[1:], framed(b"none:"), large[:9], large[9:], large[:1], large[1:]):
        assert not pair.connection.stirred()
        pair.send(came)
        assert pair.connection.stirred()
    pair.client.close()
    pair.turn()
    assert pair.host.gone
    assert not pair.connection.stirred()


@pytest.mark.parametrize("came", [framed(b"none:"), framed(b"none:") + b"\0", framed(b"none:" + b"l" * 99_999)[:9]])
def test_of_a_client_that_has_gone_nothing_more_comes(pair: Pair, came: bytes) -> None:  # noqa: F811
    pair.send(came)
    assert pair.connection.stirred()
    pair.client.close()
    pair.turn()
    assert pair.host.gone
    assert not pair.connection.stirred()


def test_a_client_that_goes_behind_a_large_frame_leaves_no_buffer_behind(pair: Pair) -> None:  # noqa: F811
    read_ahead(pair)
    pair.client.close()
    pair.turn()
    assert pair.host.gone
    assert pair.host.buffers.lent_bytes == 0


@pytest.mark.parametrize(("key", "waits"), [(0, False), (1, False), (2, True), (3, True)])
def test_while_many_are_read_in_steps_only_large_produce_and_fetch_requests_are_received(
    pair: Pair,  # noqa: F811
    key: int,
    waits: bool,
) -> None:
    pair.host.buffers.kept_bytes = KEPT_BYTES_MAX
    frame = framed(bytes([0, key]) + b":" + b"x" * LARGE_FRAME_BYTES)
    pair.send(frame[:100])
    assert pair.host.waiting == ([pair.connection] if waits else [])
    pair.host.buffers.kept_bytes = 0
    pair.connection.buffers_free()
    pair.send(frame[100:])
    assert pair.answers() == [b"x" * LARGE_FRAME_BYTES]


def test_a_large_frame_that_waits_for_its_turn_leaves_no_buffer_behind_when_its_client_is_closed(
    pair: Pair,  # noqa: F811
) -> None:
    pair.host.busy = True
    pair.loop.call_in_turn = lambda *_: None  # its turn doesn't come
    pair.send(framed(b"\0\x03:" + b"x" * LARGE_FRAME_BYTES))
    assert pair.host.seen == []
    assert pair.host.buffers.lent_bytes > LARGE_FRAME_BYTES
    pair.connection.close()
    assert pair.host.buffers.lent_bytes == 0
