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
from tidelog.wire.decode import Decode, DecodeSteps, compile_decode_steps, compile_decoder
from tidelog.wire.encode import (
    Encode,
    EncodeSteps,
    Pieces,
    PiecesSteps,
    compile_encode_steps,
    compile_encoder,
    compile_pieces,
    compile_pieces_steps,
)
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.schema import schema

__all__ = [
    "Records",
    "Sendable",
    "SentRecords",
    "declaration",
    "decode_steps",
    "decode_whole",
    "decoder",
    "encode_steps",
    "encoder",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "message",
    "pieces",
    "pieces_steps",
    "struct",
    "u16",
    "u32",
    "uuid",
    "wire",
]

T = TypeVar("T")

_decoders: dict[tuple[type, int], Any] = {}
_encoders: dict[tuple[type, int], Any] = {}
_decode_steps: dict[tuple[type, int], Any] = {}
_encode_steps: dict[tuple[type, int], Any] = {}
_pieces: dict[tuple[type, int], Any] = {}
_pieces_steps: dict[tuple[type, int], Any] = {}


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


def decode_steps(cls: type[T], version: int) -> DecodeSteps[T]:
    """As `decoder`, in steps: a generator that yields after every few elements and returns what the decoder would."""
    found = _decode_steps.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _decode_steps[cls, version] = compile_decode_steps(cls, version)
    return cast("DecodeSteps[T]", found)


def encode_steps(cls: type[T], version: int) -> EncodeSteps[T]:
    """As `encoder`, in steps: a generator that yields after every few elements and returns what the encoder would, in
    pieces."""
    found = _encode_steps.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _encode_steps[cls, version] = compile_encode_steps(cls, version)
    return cast("EncodeSteps[T]", found)


def pieces(cls: type[T], version: int) -> Pieces[T]:
    """The function `object -> list of pieces` that make up the message: non-empty records stay the objects they are."""
    found = _pieces.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _pieces[cls, version] = compile_pieces(cls, version)
    return cast("Pieces[T]", found)


def pieces_steps(cls: type[T], version: int) -> PiecesSteps[T]:
    """As `pieces`, in steps: a generator that yields after every few elements and returns the list."""
    found = _pieces_steps.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _pieces_steps[cls, version] = compile_pieces_steps(cls, version)
    return cast("PiecesSteps[T]", found)


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
