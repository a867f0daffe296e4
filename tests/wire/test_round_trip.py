"""Every message in every version: what is encoded is decoded again, whole, and in every form of buffer."""

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.wire.values import each_version, values, version_id
from tidelog.wire.codec import decode_steps, decode_whole, decoder, encode_steps, encoder, pieces, pieces_steps

few = settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def ended(steps: Generator[None, None, Any]) -> Any:
    """What comes of it, however many steps it takes."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(("cls", "version"), each_version(), ids=version_id)
@few
@given(data=st.data())
def test_a_message_comes_back_as_it_was(cls: type[Any], version: int, data: st.DataObject) -> None:
    value = data.draw(values(cls, version))
    encoded = encoder(cls, version)(value)
    assert decode_whole(cls, version, encoded) == value
    assert b"".join(pieces(cls, version)(value)) == encoded

    amid_others = memoryview(bytearray(b"\xff" * 7 + encoded + b"\xff" * 9))
    assert decoder(cls, version)(amid_others, 7) == (value, 7 + len(encoded))

    assert b"".join(ended(pieces_steps(cls, version)(value))) == encoded
    assert b"".join(ended(encode_steps(cls, version)(value))) == encoded
    assert ended(decode_steps(cls, version)(amid_others, 7)) == (value, 7 + len(encoded))


@pytest.mark.parametrize(("cls", "version"), each_version(), ids=version_id)
def test_a_message_of_defaults_comes_back(cls: type[Any], version: int) -> None:
    assert decode_whole(cls, version, encoder(cls, version)(cls())) == cls()
