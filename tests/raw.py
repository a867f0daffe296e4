"""Requests over a plain socket: through Tidelog's codec, or any bytes at all.

Requests are written as plain dicts with the messages' field names, so that a script of them reads like the protocol:
`connection.ask(ApiKey.METADATA, 12, {"topics": [{"name": "a"}]})`.
"""

import socket
import struct
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from tidelog.wire.codec import declaration, decoder, encoder
from tidelog.wire.keys import RANGES, ApiKey

TIMEOUT_S = 15.0


class ClosedError(Exception):
    """The other side closed the connection instead of answering."""


class Connection:
    """One connection to a broker, blocking; answers are awaited in the order of the requests."""

    def __init__(self, bootstrap: str, *, client_id: str | None = "raw", timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.client_id = client_id
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def ask(self, key: ApiKey, version: int, fields: Mapping[str, Any] | None = None) -> Any:
        """Send and wait for the answer, as the response's dataclass."""
        return self.answer(key, version, self.send(key, version, fields or {}))

    def send(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> int:
        """Send without waiting; the correlation id that its answer will carry."""
        return self.send_together([(key, version, fields)])[0]

    def send_together(self, requests: Sequence[tuple[ApiKey, int, Mapping[str, Any]]]) -> list[int]:
        """Send several requests in one write; the correlation ids that their answers will carry."""
        frames = bytearray()
        ids: list[int] = []
        for key, version, fields in requests:
            self._correlation_id += 1
            ids.append(self._correlation_id)
            body = encoder(request_class(key), version)(build(request_class(key), fields))
            frame = self.header(key, version, self._correlation_id) + body
            frames += struct.pack(">i", len(frame)) + frame
        self.send_bytes(bytes(frames))
        return ids

    def answer(self, key: ApiKey, version: int, correlation_id: int) -> Any:
        """The next answer, which must be the one to that request."""
        frame = self.read_frame()
        got = struct.unpack_from(">i", frame)[0]
        assert got == correlation_id, f"answers out of order: {got} instead of {correlation_id}"
        flexible = version >= RANGES[key].flexible_from and key != ApiKey.API_VERSIONS
        start = 5 if flexible else 4
        if flexible:
            assert frame[4] == 0, "a tagged field in a response header"
        response, end = decoder(response_class(key), version)(frame, start)
        assert end == len(frame), f"{len(frame) - end} bytes left behind the answer to {key.name} v{version}"
        return response

    def header(self, key: int, version: int, correlation_id: int) -> bytes:
        """A request header: v2 where the version is flexible, else v1."""
        client = None if self.client_id is None else self.client_id.encode()
        head = struct.pack(">hhih", key, version, correlation_id, -1 if client is None else len(client))
        flexible = key in RANGES and version >= RANGES[key].flexible_from
        return head + (client or b"") + (b"\0" if flexible else b"")

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        """Anything at all, without a length in front."""
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise ClosedError(str(error)) from None

    def read_frame(self) -> bytes:
        size = struct.unpack(">i", self._read(4))[0]
        return self._read(size)

    def is_closed(self) -> bool:
        """Whether the other side closes within the timeout, having sent nothing more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                more = self.socket.recv(min(count - len(data), 1 << 20))
            except ConnectionResetError as error:
                raise ClosedError(str(error)) from None
            if not more:
                raise ClosedError("closed")
            data += more
        return bytes(data)


@cache
def request_class(key: ApiKey) -> Any:
    return _message(key, "Request")


@cache
def response_class(key: ApiKey) -> Any:
    return _message(key, "Response")


def _message(key: ApiKey, kind: str) -> Any:
    name = key.name.lower()
    camel = "".join(part.capitalize() for part in name.split("_"))
    return getattr(import_module(f"tidelog.wire.messages.{name}"), camel + kind)


def is_struct(value: Any) -> bool:
    """Whether it is a message or a part of one: the class, or an object of it."""
    return hasattr(value, "__wire__")


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a message or a part of one."""
    return {name: getattr(value, name) for name in value.__slots__}


def build(cls: Any, fields: Mapping[str, Any]) -> Any:
    """A message from plain dicts and lists; an unknown field name is a mistake of the test."""
    kinds = _fields(cls)
    unknown = fields.keys() - kinds.keys()
    assert not unknown, f"{cls.__name__} has no {sorted(unknown)}; it has {sorted(kinds)}"
    return cls(**{name: _value(kinds[name], value) for name, value in fields.items()})


def _value(struct_class: Any, value: Any) -> Any:
    if struct_class is None or value is None:
        return value
    if isinstance(value, Mapping):
        return build(struct_class, typing.cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return [_value(struct_class, item) for item in typing.cast("list[Any]", value)]
    return value


@cache
def _fields(cls: Any) -> dict[str, Any]:
    """Field name -> the struct class in its type, if there is one."""
    return {name: _struct_in(hint) for name, hint in declaration(cls).annotations.items()}


def _struct_in(hint: Any) -> Any:
    if is_struct(hint):
        return hint
    if typing.get_origin(hint) in (list, typing.Union, types.UnionType, typing.Annotated):
        for part in typing.get_args(hint):
            found = _struct_in(part)
            if found is not None:
                return found
    return None
