"""One version of one API: how its request is read, who handles it, how the answer and its failure are written."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from struct import Struct
from typing import TYPE_CHECKING, Any

from tidelog.apis import handler
from tidelog.wire.codec import decoder, encoder
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.header import has_response_tags
from tidelog.wire.keys import ApiKey

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

_frame_plain = Struct(">ii").pack
_frame_flexible = Struct(">iib").pack


class Api:
    __slots__ = ("decode", "encode", "handle", "key", "name", "request", "response", "tagged_header", "version")

    def __init__(self, key: int, version: int) -> None:
        name = ApiKey(key).name.lower()
        module = import_module(f"tidelog.wire.messages.{name}")
        camel = "".join(part.capitalize() for part in name.split("_"))
        self.key = key
        self.version = version
        self.name = f"{ApiKey(key).name} v{version}"
        self.request: type[Any] = getattr(module, f"{camel}Request")
        self.decode: Callable[[memoryview, int], tuple[Any, int]] = decoder(self.request, version)
        self.response: type[Any] = getattr(module, f"{camel}Response")
        self.encode: Callable[[Any], bytes] = encoder(self.response, version)
        self.handle = handler(key)
        self.tagged_header = has_response_tags(key, version)

    def head(self, correlation_id: int, body_bytes: int) -> bytes:
        """The length and the header of an answer."""
        if self.tagged_header:
            return _frame_flexible(body_bytes + 5, correlation_id, 0)
        return _frame_plain(body_bytes + 4, correlation_id)

    def frame(self, correlation_id: int, response: Any) -> bytes:
        body = self.encode(response)
        return self.head(correlation_id, len(body)) + body

    def failure(self, context: Context, code: ErrorCode, message: str | None) -> Any:
        """The response that says so of the request as a whole. MalformedError where it has no place for it."""
        fields = getattr(self.response, "__dataclass_fields__", {})
        if "error_code" not in fields:
            name = ApiKey(self.key).name
            raise MalformedError(f"{name} v{context.version} can't be answered: {code.name} {message or ''}".rstrip())
        return self.response(error_code=int(code), **({"error_message": message} if "error_message" in fields else {}))


def error_of(error: Exception) -> tuple[ErrorCode, str | None]:
    """What a client is told of it: anything but the protocol's own errors is a bug."""
    if isinstance(error, KafkaError):
        return error.code, error.message
    return ErrorCode.UNKNOWN_SERVER_ERROR, None
