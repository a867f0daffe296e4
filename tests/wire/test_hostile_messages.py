"""Bytes that are no message: one clear error, never another exception, never memory that a length merely claimed."""

import random
import struct
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.wire.values import each_version, values, version_id
from tidelog.wire.bounds import REQUEST_ELEMENTS_MAX, REQUEST_TAGGED_FIELDS_MAX, TAGGED_FIELDS_MAX
from tidelog.wire.codec import decode_steps, decode_whole, decoder, encoder
from tidelog.wire.errors import MalformedError
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.list_offsets import ListOffsetsRequest
from tidelog.wire.messages.metadata import MetadataRequest

once = settings(
    max_examples=2,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
few = settings(once, max_examples=3)

LIES = [
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x7f\xff",
    b"\x80",
    b"\x00",
    b"\xc3\x28",
]


@pytest.mark.parametrize(("cls", "version"), each_version(), ids=version_id)
@once
@given(data=st.data())
def test_a_message_cut_off_anywhere_is_malformed(cls: type[Any], version: int, data: st.DataObject) -> None:
    encoded = encoder(cls, version)(data.draw(values(cls, version)))
    decode = decoder(cls, version)
    for size in range(len(encoded)):
        with pytest.raises(MalformedError):
            decode(encoded[:size], 0)


@pytest.mark.parametrize(("cls", "version"), each_version(), ids=version_id)
@few
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_message_with_other_bytes_in_it_is_malformed_or_another_message(
    cls: type[Any], version: int, data: st.DataObject, seed: int
) -> None:
    encoded = encoder(cls, version)(data.draw(values(cls, version)))
    choose = random.Random(seed)
    for _ in range(40):
        mutated = bytearray(encoded)
        for _ in range(choose.randint(1, 3)):
            pos = choose.randint(0, len(mutated))
            lie = choose.choice(LIES) if choose.random() < 0.7 else choose.randbytes(choose.randint(1, 3))
            mutated[pos : pos + choose.choice((0, len(lie)))] = lie
        with suppress(MalformedError):
            decode_whole(cls, version, memoryview(mutated))


def test_nothing_is_allocated_because_a_length_claims_it() -> None:
    tried = [(cls, version, encoder(cls, version)(cls())) for cls, version in each_version()]
    for cls, version, _ in tried:
        decoder(cls, version)
    tracemalloc.start()
    try:
        for cls, version, encoded in tried:
            for pos in range(len(encoded)):
                for lie in LIES[:4]:
                    tracemalloc.reset_peak()
                    before, _ = tracemalloc.get_traced_memory()
                    with suppress(MalformedError):
                        decoder(cls, version)(encoded[:pos] + lie + encoded[pos + len(lie) :] + bytes(50), 0)
                    _, peak = tracemalloc.get_traced_memory()
                    assert peak - before < 100_000, f"{cls.__name__} v{version} with {lie.hex()} at {pos}"
    finally:
        tracemalloc.stop()


def test_the_arrays_of_a_request_have_a_bound_together() -> None:
    def encoded(more: int) -> bytes:
        counts = [REQUEST_ELEMENTS_MAX // 2, REQUEST_ELEMENTS_MAX // 2 - 2 + more]
        return struct.pack(">bi", 0, 2) + b"".join(
            b"\0\1t" + struct.pack(">i", count) + struct.pack(">iq", 0, -1) * count for count in counts
        )

    request, _ = decoder(ListOffsetsRequest, 2)(struct.pack(">i", -1) + encoded(0), 0)
    assert sum(len(topic.partitions) for topic in request.topics) == REQUEST_ELEMENTS_MAX - 2
    with pytest.raises(MalformedError, match="ask in several requests"):
        decoder(ListOffsetsRequest, 2)(struct.pack(">i", -1) + encoded(1), 0)


def test_tagged_fields_have_a_bound() -> None:
    for cls, version in ((ApiVersionsRequest, 3), (FetchRequest, 15)):
        encoded = encoder(cls, version)(cls())
        assert encoded.endswith(b"\0")
        with pytest.raises(MalformedError, match="tagged fields in one place"):
            decoder(cls, version)(encoded[:-1] + b"\xff\x7f" + b"\x7f\0" * 16383, 0)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def tagged_topics(count: int, tags: int) -> bytes:
    """Metadata v12 of topics without a name, each with tagged fields that nobody knows."""
    topic = bytes(16) + b"\0" + uvarint(tags) + b"\x40\0" * tags
    return uvarint(count + 1) + topic * count + b"\0\0\0"


@pytest.mark.parametrize("tags", [1, TAGGED_FIELDS_MAX])
def test_the_tagged_fields_of_a_request_have_a_bound_together(tags: int) -> None:
    most = min(REQUEST_TAGGED_FIELDS_MAX // tags, REQUEST_ELEMENTS_MAX)
    request, _ = decoder(MetadataRequest, 12)(tagged_topics(most, tags), 0)
    assert len(request.topics or ()) == most
    if most < REQUEST_ELEMENTS_MAX:
        for decode in (decoder, lambda cls, version: lambda b, p: list(decode_steps(cls, version)(b, p))):
            with pytest.raises(MalformedError, match="tagged fields"):
                decode(MetadataRequest, 12)(tagged_topics(most + 1, tags), 0)


def test_others_have_their_turn_between_tagged_fields_as_between_elements() -> None:
    steps = sum(1 for _ in decode_steps(MetadataRequest, 12)(tagged_topics(200, TAGGED_FIELDS_MAX), 0))
    assert steps == 200
