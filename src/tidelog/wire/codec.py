"""Messages to bytes and back: declare with `struct` and `message`, then ask for a decoder or encoder by version.

    request, end = decoder(ProduceRequest, version)(frame, start)
    answer = encoder(ProduceResponse, version)(response)

A function is compiled for each message and version on first use; asking again is a dictionary lookup.
"""

from collections.abc import Callable
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


class _Compiled(dict[tuple[type, int], Any]):
    """Functions for messages and their versions, each compiled when it is first asked for."""

    def __init__(self, compile: Callable[[type[Any], int], Any]) -> None:
        super().__init__()
        self._compile = compile

    def __missing__(self, wanted: tuple[type, int]) -> Any:
        _check_version(*wanted)
        compiled = self[wanted] = self._compile(*wanted)
        return compiled


_decoders = _Compiled(compile_decoder)
_encoders = _Compiled(compile_encoder)
_decode_steps = _Compiled(compile_decode_steps)
_encode_steps = _Compiled(compile_encode_steps)
_pieces = _Compiled(compile_pieces)
_pieces_steps = _Compiled(compile_pieces_steps)


def decoder(cls: type[T], version: int) -> Decode[T]:
    """The function `(buffer, position) -> (object, where it ended)`; it raises MalformedError.

    It reads no further than the buffer. Where the buffer holds more than the frame, the caller compares the end with
    the frame's. Fields of type Records are views into the buffer; everything else is copied.
    """
    return cast("Decode[T]", _decoders[cls, version])


def encoder(cls: type[T], version: int) -> Encode[T]:
    """The function `object -> bytes`; KafkaError(UNSUPPORTED_VERSION) where a value has no place in this version."""
    return cast("Encode[T]", _encoders[cls, version])


def decode_steps(cls: type[T], version: int) -> DecodeSteps[T]:
    """As `decoder`, in steps: a generator that yields after every few elements and returns what the decoder would."""
    return cast("DecodeSteps[T]", _decode_steps[cls, version])


def encode_steps(cls: type[T], version: int) -> EncodeSteps[T]:
    """As `encoder`, in steps: a generator that yields after every few elements and returns what the encoder would, in
    pieces."""
    return cast("EncodeSteps[T]", _encode_steps[cls, version])


def pieces(cls: type[T], version: int) -> Pieces[T]:
    """The function `object -> list of pieces` that make up the message: non-empty records stay the objects they are."""
    return cast("Pieces[T]", _pieces[cls, version])


def pieces_steps(cls: type[T], version: int) -> PiecesSteps[T]:
    """As `pieces`, in steps: a generator that yields after every few elements and returns the list."""
    return cast("PiecesSteps[T]", _pieces_steps[cls, version])


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
