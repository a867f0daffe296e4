"""Messages to bytes and back: declare with `struct` and `message`, then ask for a decoder or encoder by version.

    request, end = decoder(ProduceRequest, version)(frame, start)
    answer = encoder(ProduceResponse, version)(response)

A function is compiled for each message and version on first use; asking again is a dictionary lookup.
"""

from typing import Any, TypeVar, cast

from tidelog.wire.declare import (
    Records,
    Sendable,
    SentRecords,
    declaration,
    f64,
    i8,
    i16,
    i32,
    i64,
    message,
    struct,
    u16,
    u32,
    uuid,
    wire,
)
from tidelog.wire.decode import Decode, compile_decoder
from tidelog.wire.encode import Encode, Pieces, compile_encoder, compile_pieces
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.schema import schema

__all__ = [
    "Records",
    "Sendable",
    "SentRecords",
    "declaration",
    "decode_whole",
    "decoder",
    "encoder",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "message",
    "pieces",
    "struct",
    "u16",
    "u32",
    "uuid",
    "wire",
]

T = TypeVar("T")

_decoders: dict[tuple[type, int], Any] = {}
_encoders: dict[tuple[type, int], Any] = {}
_pieces: dict[tuple[type, int], Any] = {}


def decoder(cls: type[T], version: int) -> Decode[T]:
    """The function `(buffer, position) -> (object, where it ended)`; it raises MalformedError.

    It reads no further than the buffer. Where the buffer holds more than the frame, the caller compares the end with
    the frame's. Fields of type Records are views into the buffer; everything else is copied.
    """
    found = _decoders.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _decoders[cls, version] = compile_decoder(cls, version)
    return cast("Decode[T]", found)


def encoder(cls: type[T], version: int) -> Encode[T]:
    """The function `object -> bytes`; KafkaError(UNSUPPORTED_VERSION) where a value has no place in this version."""
    found = _encoders.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _encoders[cls, version] = compile_encoder(cls, version)
    return cast("Encode[T]", found)


def pieces(cls: type[T], version: int) -> Pieces[T]:
    """The function `object -> list of pieces` that make up the message: non-empty records stay the objects they are."""
    found = _pieces.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _pieces[cls, version] = compile_pieces(cls, version)
    return cast("Pieces[T]", found)


def decode_whole(cls: type[T], version: int, buffer: bytes | memoryview) -> T:
    """The one message that fills the buffer."""
    made, end = decoder(cls, version)(buffer, 0)
    if end != len(buffer):
        raise MalformedError(f"{cls.__name__} v{version} ends at byte {end}, but there are {len(buffer)}")
    return made


def _check_version(cls: type, version: int) -> None:
    versions = schema(cls).versions
    if version not in versions:
        first, last = versions
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has versions {first} to {last}, not {version}")
