"""The headers before each request and response.

Requests: v1, and v2 with tagged fields where the API's version is flexible; both give the client id a two-byte length.
Responses: v0, and v1 with tagged fields where flexible; except ApiVersions, whose answers always have v0, so that a
client which doesn't know the broker's versions yet can read them.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from tidelog.wire.decode import skip_tags
from tidelog.wire.errors import MalformedError
from tidelog.wire.keys import RANGES, ApiKey

_START = Struct(">hhih")
_CORRELATION = Struct(">i")


class RequestHeader(NamedTuple):
    """Who asks what, and where in the frame the request itself begins."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_pos: int


def is_flexible(key: int, version: int) -> bool:
    """Whether this version of the API has compact lengths and tagged fields."""
    return version >= RANGES[key].flexible_from


def read_header(buffer: bytes | memoryview, pos: int) -> RequestHeader:
    """The request header at `pos`. The version may be one that is not served; an unknown key is an error."""
    try:
        key, version, correlation_id, size = _START.unpack_from(buffer, pos)
        pos += _START.size
        if key not in RANGES:
            raise MalformedError(f"there is no API with key {key}")
        client_id = None
        if size >= 0:
            end = pos + size
            if end > len(buffer):
                raise MalformedError(f"the client id claims {size} bytes, {len(buffer) - pos} remain")
            client_id = str(buffer[pos:end], "utf-8")
            pos = end
        if is_flexible(key, version):
            count = buffer[pos]
            pos += 1
            if count:
                pos = skip_tags(buffer, pos, count, len(buffer))
    except (StructError, IndexError):
        raise MalformedError(f"a request header is cut off: the frame ends at byte {len(buffer)}") from None
    except UnicodeDecodeError:
        raise MalformedError("the client id is not UTF-8") from None
    return RequestHeader(key, version, correlation_id, client_id, pos)


def request_header(key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header before a request that we send."""
    name = b"" if client_id is None else client_id.encode()
    start = _START.pack(key, version, correlation_id, -1 if client_id is None else len(name))
    return start + name + (b"\0" if is_flexible(key, version) else b"")


def has_response_tags(key: int, version: int) -> bool:
    """Whether the response's header has tagged fields."""
    return key != ApiKey.API_VERSIONS and is_flexible(key, version)


def response_header(key: int, version: int, correlation_id: int) -> bytes:
    """The header before a response."""
    return _CORRELATION.pack(correlation_id) + (b"\0" if has_response_tags(key, version) else b"")


def read_response_header(buffer: bytes | memoryview, pos: int, key: int, version: int) -> tuple[int, int]:
    """The correlation id of the response at `pos` to a request of this key and version, and where its body begins."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(buffer, pos)
        pos += _CORRELATION.size
        if has_response_tags(key, version):
            count = buffer[pos]
            pos += 1
            if count:
                pos = skip_tags(buffer, pos, count, len(buffer))
    except (StructError, IndexError):
        raise MalformedError(f"a response header is cut off: the frame ends at byte {len(buffer)}") from None
    return correlation_id, pos
