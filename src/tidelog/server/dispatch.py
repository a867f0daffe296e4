"""A frame to its API and the answer back: the one door for errors.

A frame that can't be understood closes its connection with a line in the log, as Kafka does, since where the next frame
begins is then unknown. An error of a request becomes the protocol's own error; anything else is a bug: it is logged
once with its trace and answered with UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from tidelog.apis import SERVED, handler
from tidelog.apis.context import Context, Services
from tidelog.apis.fetch.path import FetchPath
from tidelog.apis.produce import ProducePath
from tidelog.apis.produce_run import ProduceRun
from tidelog.env.promise import Promise
from tidelog.server.answers import Answer, Late, Slot
from tidelog.wire.codec import decoder, encoder
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.header import has_response_tags, read_header
from tidelog.wire.keys import RANGES, ApiKey

if TYPE_CHECKING:
    from tidelog.server.connection import Connection

log = logging.getLogger("tidelog.server")

PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)

_read_start = Struct(">hhih").unpack_from  # API key, version, correlation id, bytes of the client id
_frame_plain = Struct(">ii").pack
_frame_flexible = Struct(">iib").pack


class _Api:
    """One version of one API: how its request is read, who handles it, how the answer is written."""

    __slots__ = ("decode", "encode", "handle", "key", "response", "tagged_header")

    def __init__(self, key: int, version: int) -> None:
        name = ApiKey(key).name.lower()
        module = import_module(f"tidelog.wire.messages.{name}")
        camel = "".join(part.capitalize() for part in name.split("_"))
        self.key = key
        self.decode: Callable[[memoryview, int], tuple[Any, int]] = decoder(getattr(module, f"{camel}Request"), version)
        self.response: type[Any] = getattr(module, f"{camel}Response")
        self.encode: Callable[[Any], bytes] = encoder(self.response, version)
        self.handle = handler(key)
        self.tagged_header = has_response_tags(key, version)


class _Promised:
    """An answer that comes when its promise is settled."""

    __slots__ = ("_finish", "_promise", "runs_ahead")

    def __init__(
        self, promise: Promise[Any], finish: Callable[[Promise[Any]], Answer], *, runs_ahead: bool = False
    ) -> None:
        self._promise = promise
        self._finish = finish
        self.runs_ahead = runs_ahead

    def begin(self, slot: Slot) -> None:
        def settled(promise: Promise[Any]) -> None:
            try:
                answer = self._finish(promise)
            except MalformedError as error:
                slot.fail(str(error))
            else:
                slot.complete(answer)

        self._promise.on_done(settled)

    def abandon(self) -> None:
        """What was begun is done all the same; its answer goes nowhere."""


class Dispatch:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._apis: dict[tuple[int, int], _Api] = {}
        produce = ProducePath(services)
        self._produce = produce.handle_frame
        self.handle_run = ProduceRun(services, produce).handle
        self._fetch = FetchPath(services, self._general).handle_frame

    def handle(self, connection: Connection, buffer: memoryview, start: int, end: int) -> Answer | Late:
        if end - start < 10:
            raise MalformedError(f"a frame of {end - start} bytes is too short for a request header")
        key, version, correlation_id, client_bytes = _read_start(buffer, start)
        if key == PRODUCE:
            pos = start + 10 + client_bytes if client_bytes > 0 else start + 10
            answer = self._produce(buffer, pos, end, version, correlation_id)
            if answer is not NotImplemented:
                return answer
        elif key == FETCH:
            pos = start + 10 + client_bytes if client_bytes > 0 else start + 10
            answer = self._fetch(connection, buffer, start, pos, end, version, correlation_id)
            if answer is not NotImplemented:
                return answer
        return self._general(connection, buffer, start, end, key, version, correlation_id)

    def _general(
        self, connection: Connection, buffer: memoryview, start: int, end: int, key: int, version: int, correlation: int
    ) -> Answer | Late:
        api = self._apis.get((key, version))
        if api is None:
            if key == ApiKey.API_VERSIONS and not RANGES[key].min <= version <= RANGES[key].max:
                return self._api_versions_too_new(correlation)
            api = self._apis[key, version] = self._find(key, version)
        frame = buffer[:end]
        header = read_header(frame, start)
        client_id = header.client_id
        try:
            # Bytes left behind the request are let pass, as Kafka does: librdkafka sends three with Metadata v13.
            request, _ = api.decode(frame, header.body_pos)
        except MalformedError as error:
            raise MalformedError(f"{ApiKey(key).name} v{version} from {client_id!r}: {error}") from error
        context = Context(
            self._services, version, client_id, connection.peer, connection.listener, connection.id, correlation
        )
        try:
            response = api.handle(context, request)
            if isinstance(response, api.response):
                return _frame(api, correlation, api.encode(response))
        except MalformedError:
            raise
        except Exception as error:
            return self._failed(api, context, error)
        if isinstance(response, Promise):
            ahead = key == ApiKey.PRODUCE
            promised = cast("Promise[Any]", response)
            return _Promised(promised, lambda promise: self._settled(api, context, promise), runs_ahead=ahead)
        return response  # bytes, pieces, an answer that comes later or None: the API wrote the frame itself

    def _settled(self, api: _Api, context: Context, promise: Promise[Any]) -> Answer:
        try:
            response = promise.result()
            return _frame(api, context.correlation_id, api.encode(response))
        except Exception as error:
            return self._failed(api, context, error)

    def _failed(self, api: _Api, context: Context, error: Exception) -> Answer:
        """The answer that says so, for an error of the request as a whole."""
        name = ApiKey(api.key).name
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
            log.error(
                "%s v%d from %s (%s) failed",
                name,
                context.version,
                context.client_host,
                context.client_id,
                exc_info=error,
            )
        fields = getattr(api.response, "__dataclass_fields__", {})
        if "error_code" not in fields:
            raise MalformedError(f"{name} v{context.version} can't be answered: {code.name} {message or ''}".rstrip())
        response = api.response(
            error_code=int(code), **({"error_message": message} if "error_message" in fields else {})
        )
        return _frame(api, context.correlation_id, api.encode(response))

    def _find(self, key: int, version: int) -> _Api:
        if key not in SERVED:
            raise MalformedError(f"API key {key} (version {version}) is not served here")
        allowed = RANGES[key]
        if not allowed.min <= version <= allowed.max:
            raise MalformedError(
                f"{ApiKey(key).name} version {version} is not served: {allowed.min} to {allowed.max} are"
            )
        return _Api(key, version)

    def _api_versions_too_new(self, correlation_id: int) -> Answer:
        """ApiVersions in a version we don't know: the answer is in version 0, so that any client can read it."""
        from tidelog.apis.api_versions import unsupported_version

        body = encoder(unsupported_version.__annotations__["return"], 0)(unsupported_version())
        return _frame_plain(len(body) + 4, correlation_id) + body


def _frame(api: _Api, correlation_id: int, body: bytes) -> bytes:
    if api.tagged_header:
        return _frame_flexible(len(body) + 5, correlation_id, 0) + body
    return _frame_plain(len(body) + 4, correlation_id) + body
