"""A frame to its API and the answer back: the one door for errors.

A frame that can't be understood closes its connection with a line in the log, as Kafka does, since where the next frame
begins is then unknown. An error of a request becomes the protocol's own error; anything else is a bug: it is logged
once with its trace and answered with UNKNOWN_SERVER_ERROR.

A request that takes long is read, handled and answered in steps (`env/slices.py`), a slice in each turn of the loop:
one that is large, and one whose handler is a generator. Its connection goes on with the next one when it is answered.
What it takes meanwhile is a hundred times its bytes, so that only a few are worked on at once
(`concurrency_limit.py`). One that needs logs that weren't opened since the start waits for them, and so do those
behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from tidelog.apis.fetch.path import FetchPath
from tidelog.apis.listeners import FORWARDED, ListenerKind, served_on
from tidelog.apis.produce import ProducePath, takes_long
from tidelog.apis.shared.api import Api, error_of
from tidelog.apis.shared.context import Context, Services
from tidelog.apis.shared.forwarding import decided_here, forward, is_for_this_node, not_decided
from tidelog.apis.shared.needed_logs import needed
from tidelog.apis.shared.staged import Staged
from tidelog.env.promise import Promise, gather
from tidelog.env.slices import LIGHT, Steps, Weight, settled
from tidelog.server.answers import Answer, Late, Slot
from tidelog.server.bounds import (
    JOINED_BYTES_MAX,
    LARGE_AT_ONCE,
    LARGE_BYTES,
    OPEN_WAIT_S,
    OPENED_A_STEP,
    OTHERS_AT_ONCE,
    STEPS_FROM_BYTES,
)
from tidelog.server.concurrency_limit import ConcurrencyLimit
from tidelog.wire.codec import decode_steps, encode_steps, encoder
from tidelog.wire.errors import KafkaError, MalformedError
from tidelog.wire.header import read_header
from tidelog.wire.keys import RANGES, ApiKey
from tidelog.wire.release import release

if TYPE_CHECKING:
    from tidelog.server.connection import Connection

log = logging.getLogger("tidelog.server")
requests = logging.getLogger("tidelog.requests")


PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)

_read_start = Struct(">hhih").unpack_from  # API key, version, correlation id, bytes of the client id
_frame_plain = Struct(">ii").pack


class _Promised:
    """An answer that comes when its promise is settled; in two stages perhaps. What comes of it may itself be late."""

    __slots__ = ("_abandoned", "_appended", "_finish", "_late", "_promise", "runs_ahead")

    def __init__(self, response: Promise[Any] | Staged[Any], finish: Callable[[Promise[Any]], Answer | Late]) -> None:
        self._finish = finish
        self._late: Late | None = None
        self._abandoned = False
        if isinstance(response, Staged):
            self._promise, self._appended = response.answer, response.appended
            self.runs_ahead = self._appended is None
        else:
            self._promise, self._appended = response, None
            self.runs_ahead = False

    def begin(self, slot: Slot) -> None:
        if self._appended is not None:
            self._appended.on_done(lambda _: slot.appended())

        def settled(promise: Promise[Any]) -> None:
            if self._abandoned:
                return
            try:
                answer = self._finish(promise)
            except MalformedError as error:
                slot.fail(str(error))
                return
            if answer is None or isinstance(answer, (bytes, list)):
                slot.complete(answer)
            else:
                self._late = answer
                answer.begin(slot)

        self._promise.on_done(settled)

    def abandon(self) -> None:
        """What was begun is done all the same; its answer goes nowhere."""
        self._abandoned = True
        if self._late is not None:
            self._late.abandon()


class Dispatch:
    """For the listeners of one kind: what the others serve isn't known here."""

    def __init__(self, services: Services, kind: ListenerKind = ListenerKind.BROKER) -> None:
        self._served = served_on(kind)
        self._kind = kind
        self._services = services
        self._loop = services.env.loop
        self._monotonic = services.env.clock.monotonic
        self._apis: dict[tuple[int, int], Api] = {}
        self._replicas = services.replicas
        produce = ProducePath(services)
        self._produce, self.handle_alike = produce.handle_frame, produce.handle_alike
        self.begin_ahead = produce.begin_ahead
        self._fetch = FetchPath(services, self._general).handle_frame
        if kind is ListenerKind.CONTROLLER:  # the hand-made paths are for records of topics
            self._produce = self._fetch = _not_here
            self.handle_alike = _none_alike
        self._large = ConcurrencyLimit(self._monotonic, LARGE_AT_ONCE)
        self._others = ConcurrencyLimit(self._monotonic, OTHERS_AT_ONCE)

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
        context = Context(
            self._services, version, client_id, connection.peer, connection.listener, connection.id, correlation
        )
        self._loop.watch.work = (api.name, "of", client_id, "at", connection.peer)
        if requests.isEnabledFor(logging.DEBUG):
            who = connection.peer, client_id, connection.id
            requests.debug("%s of %d bytes from %s as %s on connection %d", api.name, end - start, *who)
        began = self._monotonic()
        try:
            if key in FORWARDED and self._kind is ListenerKind.BROKER and not self._services.channel.is_here:
                return self._pass_on(api, context, bytes(frame[start:]), header.body_pos - start)
            return self._answer(connection, api, context, frame, header.body_pos, end - start)
        except MalformedError as error:
            raise MalformedError(f"{api.name} from {client_id!r}: {error}") from error
        finally:
            if key > FETCH:
                connection.time_quota.spent(self._monotonic() - began)

    def _answer(
        self, connection: Connection, api: Api, context: Context, frame: memoryview, pos: int, frame_bytes: int
    ) -> Answer | Late:
        # Bytes left behind the request are let pass, as Kafka does: librdkafka sends three with Metadata v13.
        if frame_bytes < STEPS_FROM_BYTES:
            request, _ = api.decode(frame, pos)
        else:
            _, decoded = self._loop.begin(decode_steps(api.request, api.version)(frame, pos))
            if decoded is None:
                return self._read_on(connection, api, context, frame, pos)
            request, _ = decoded
        if api.key == PRODUCE and takes_long(request):
            return self._read_on(connection, api, context, frame, pos)
        if not self._replicas.all_open:
            places = needed(api.key, api.version, request, self._services.metadata.image)
            if self._replicas.open(places) is not None:
                return self._read_on(connection, api, context, frame, pos)
        try:
            response = self._handled(api, context, request)
            if isinstance(response, api.response):
                return api.frame(context.correlation_id, response)
        except MalformedError:
            raise
        except Exception as error:
            return self._failed(api, context, error)
        if isinstance(response, (Promise, Staged)):
            promised = cast("Promise[Any] | Staged[Any]", response)
            return _Promised(promised, lambda promise: self._settled(api, context, promise))
        if isinstance(response, Generator):
            steps = self._handling(api, context, cast("Steps[Any]", response))
            return self._go_on(api, context, steps, self._others, weight=connection.time_quota.weight)
        return response  # bytes, pieces, an answer that comes later or None: the API wrote the frame itself

    # -- for the active controller

    def _handled(self, api: Api, context: Context, request: Any) -> Any:
        """What the handler gives back. Clients of brokers needn't know who the controller is."""
        if api.key in FORWARDED and self._kind is ListenerKind.BROKER:
            return decided_here(api, context, request)
        return api.handle(context, request)

    def _pass_on(self, api: Api, context: Context, request: bytes, pos: int) -> Answer | Late:
        """It is another node. Where none answers, the handler here says so, in the way of its API."""

        def here(handle: Callable[[Api, Context, Any], Any]) -> Answer | Late:
            steps = self._whole(api, context, memoryview(request), pos, None, handle)
            return self._go_on(api, context, steps, self._others)

        if is_for_this_node(api, request, pos, self._services.node_id):
            return here(self._handled)

        def answered(promise: Promise[bytes]) -> Answer | Late:
            return here(not_decided) if promise.error is not None else promise.result()

        return _Promised(forward(context, request), answered)

    # -- in steps

    def _read_on(
        self, connection: Connection, api: Api, context: Context, frame: memoryview, pos: int
    ) -> Answer | Late:
        """A request that takes long to read: from the beginning, in a buffer that is ours for so long."""
        give_back = connection.keep_frame()
        if give_back is None:
            frame, pos = memoryview(bytearray(frame[pos:])), 0
        limit = self._large if len(frame) >= LARGE_BYTES else self._others
        steps = self._whole(api, context, frame, pos, give_back, self._handled)
        return self._go_on(api, context, steps, limit, weight=connection.time_quota.weight)

    def _go_on(
        self, api: Api, context: Context, steps: Steps[Any], limit: ConcurrencyLimit, *, weight: Weight = LIGHT
    ) -> Answer | Late:
        promise = self._loop.drive(limit.bounded(steps), weight)
        if promise.done:
            return self._answered(api, context, promise)
        return _Promised(promise, lambda promise: self._answered_later(api, context, promise))

    def _whole(
        self,
        api: Api,
        context: Context,
        frame: memoryview,
        pos: int,
        give_back: Callable[[], None] | None,
        handle: Callable[[Api, Context, Any], Any],
    ) -> Steps[Answer | Late]:
        """A request from its body on. The records of a Produce lie in the frame until they are appended."""
        try:
            request, _ = yield from decode_steps(api.request, api.version)(frame, pos)
            del frame
            if api.key != PRODUCE and give_back is not None:
                give_back()
                give_back = None
            yield from self._open_logs(api, request)
            answer = yield from self._handling(api, context, handle(api, context, request))
        finally:
            if give_back is not None:
                give_back()
        if answer is None or isinstance(answer, (bytes, list)):  # else it is still needed
            yield from release(request)
        return answer

    def _open_logs(self, api: Api, request: Any) -> Steps[None]:
        """Wait until the logs that it needs are open; or go on without those that aren't, which the client is told."""
        if self._replicas.all_open:
            return
        waiting: list[Promise[None]] = []
        asker = object()
        places = needed(api.key, api.version, request, self._services.metadata.image)
        while some := list(islice(places, OPENED_A_STEP)):
            opened = self._replicas.open(some, asker)
            if opened is not None:
                waiting.append(opened)
            yield
        if waiting:
            yield from settled(self._within(OPEN_WAIT_S, gather(waiting)))

    def _within(self, seconds: float, promise: Promise[Any]) -> Promise[None]:
        """Settled with the other one, or when the time is over."""
        either: Promise[None] = Promise()

        def over() -> None:
            if not either.done:
                either.resolve(None)

        timer = self._loop.call_later(seconds, over)

        def done(_: Promise[Any]) -> None:
            timer.cancel()
            over()

        promise.on_done(done)
        return either

    def _handling(self, api: Api, context: Context, response: Any) -> Steps[Answer | Late]:
        """The answer, from what the handler gave back: it may work in steps, and may have to wait."""
        if isinstance(response, Generator):
            response = yield from cast("Steps[Any]", response)
        if isinstance(response, Staged):
            response = cast("Staged[Any]", response).answer  # those behind it wait for that: it is a long one
        if isinstance(response, Promise):
            response = yield from settled(cast("Promise[Any]", response))
        if isinstance(response, api.response):
            return (yield from self._framed(api, context, response))
        return response

    def _framed(self, api: Api, context: Context, response: Any) -> Steps[Answer]:
        """Large ones stay in the pieces that they were written in: to copy a hundred megabytes takes long, too."""
        pieces = yield from encode_steps(api.response, api.version)(response)
        size = sum(map(len, pieces))
        if size <= JOINED_BYTES_MAX:
            frame: Answer = api.head(context.correlation_id, size) + b"".join(pieces)
        else:
            frame = [api.head(context.correlation_id, size), *pieces]
        if len(pieces) > 1:
            yield from release(response)
        return frame

    def _answered(self, api: Api, context: Context, promise: Promise[Any]) -> Answer | Late:
        if promise.error is None:
            return promise.result()
        if isinstance(promise.error, MalformedError) or not isinstance(promise.error, Exception):
            raise promise.error
        return self._failed(api, context, promise.error)

    def _answered_later(self, api: Api, context: Context, promise: Promise[Any]) -> Answer | Late:
        try:
            return self._answered(api, context, promise)
        except MalformedError as error:
            raise MalformedError(f"{api.name} from {context.client_id!r}: {error}") from error

    # -- answers and errors

    def _settled(self, api: Api, context: Context, promise: Promise[Any]) -> Answer | Late:
        try:
            response = promise.result()
        except MalformedError:
            raise
        except Exception as error:
            return self._failed(api, context, error)
        if response is None and api.key == PRODUCE:
            return None  # acks=0
        return self._go_on(api, context, self._framed(api, context, response), self._others)

    def _failed(self, api: Api, context: Context, error: Exception) -> Answer:
        """The answer that says so, for an error of the request as a whole."""
        if not isinstance(error, KafkaError):
            log.error("%s from %s (%s) failed", api.name, context.client_host, context.client_id, exc_info=error)
        return api.frame(context.correlation_id, api.failure(context, *error_of(error)))

    def _find(self, key: int, version: int) -> Api:
        if key not in self._served:
            raise MalformedError(f"API key {key} (version {version}) is not served on a {self._kind.value}'s listener")
        allowed = RANGES[key]
        if not allowed.min <= version <= allowed.max:
            raise MalformedError(
                f"{ApiKey(key).name} version {version} is not served: {allowed.min} to {allowed.max} are"
            )
        return Api(key, version)

    def _api_versions_too_new(self, correlation_id: int) -> Answer:
        """ApiVersions in a version we don't know: the answer is in version 0, so that any client can read it."""
        from tidelog.apis.api_versions import unsupported_version

        body = encoder(unsupported_version.__annotations__["return"], 0)(unsupported_version())
        return _frame_plain(len(body) + 4, correlation_id) + body


def _not_here(*_: object) -> Any:
    return NotImplemented


def _none_alike(buffer: memoryview, start: int, end: int, most: int) -> None:
    """Where Produce isn't served, there are no such requests to be taken together."""
