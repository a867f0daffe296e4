"""One connection to one broker, blocking: requests out, answers in, in order; versions agreed on when it opens."""

import socket
import ssl
import time
from collections.abc import Callable
from struct import Struct
from types import TracebackType
from typing import TypeVar

from tidelog.rpc.address import Address
from tidelog.rpc.bounds import IN_FLIGHT_MAX, LATE_S
from tidelog.rpc.errors import Lost
from tidelog.rpc.options import Options
from tidelog.rpc.versions import FIRST_VERSION, agreed, greeting, read_versions
from tidelog.wire.codec import declaration, decoder, encoder
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.header import read_response_header, request_header
from tidelog.wire.keys import ApiKey

T = TypeVar("T")

_SIZE = Struct(">i")
_BUFFER_BYTES = 64 * 1024


class Connection:
    """Opened on construction; `Lost` from any call means that it is of no more use.

    Views in an answer (records) point into the receive buffer: they are good until the next call of `receive`, or,
    where the caller gave the room, until it uses that again.
    """

    def __init__(self, address: Address, options: Options, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._options = options
        self._next_id = 0
        self._waiting: list[tuple[int, int, int, float]] = []  # correlation id, key, version, deadline
        self._buffer = bytearray(_BUFFER_BYTES)
        try:
            self._socket = socket.create_connection(address, options.connect_timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=address.host)
        except OSError as error:
            raise Lost(address, error) from error
        self.versions: dict[int, tuple[int, int]] = {}
        self._agree()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def version(self, key: int, at_most: int | None = None) -> int:
        """The newest version that both sides know; Unsupported where there is none."""
        return agreed(self.versions, key, self.address, at_most)

    def ask(self, request: object, answer: type[T], at_most: int | None = None, wait_s: float = 0) -> T:
        """Send and wait; `wait_s` is how long the broker itself may hold the answer back."""
        if self._waiting:
            raise self._broken("answers to earlier requests were left here")
        self.send(request, at_most, wait_s)
        return self.receive(answer)

    def send(self, request: object, at_most: int | None = None, wait_s: float = 0) -> None:
        """Send without waiting; answers come in the order of the requests."""
        key = declaration(type(request)).key
        assert key is not None, "a message, not a part of one"
        assert len(self._waiting) < IN_FLIGHT_MAX, "answers must be received before more is asked"
        version = self.version(key, at_most)
        self._send(key, version, encoder(type(request), version)(request), wait_s)

    def receive(self, answer: type[T], room: Callable[[int], bytearray] | None = None) -> T:
        """The next answer; `room` gives a buffer for so many bytes, where the connection's own isn't to be used."""
        correlation_id, key, version, deadline = self._waiting.pop(0)
        latest = time.monotonic() + min(LATE_S, self._options.request_timeout_s)  # it may have been here for long
        frame = self._frame(max(deadline, latest), room)
        answered_id, body = read_response_header(frame, 0, key, version)
        if answered_id != correlation_id:
            raise self._broken(f"answer {answered_id} came where {correlation_id} was expected")
        try:
            response, _ = decoder(answer, version)(frame, body)
        except MalformedError as error:
            raise self._broken(f"an answer that can't be read: {error}") from error
        return response

    def _send(self, key: int, version: int, body: bytes, wait_s: float = 0) -> None:
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        head = request_header(key, version, self._next_id, self._options.client_id)
        timeout_s = self._options.request_timeout_s + wait_s
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(_SIZE.pack(len(head) + len(body)) + head + body)
        except OSError as error:
            raise self._broken(error) from error
        self._waiting.append((self._next_id, key, version, time.monotonic() + timeout_s))

    def _agree(self) -> None:
        """Ask which versions are served: once in the newest form, again in the oldest where that is not known."""
        response = None
        for version in (FIRST_VERSION, 0):
            self._send(ApiKey.API_VERSIONS, version, greeting(version))
            correlation_id, _, _, deadline = self._waiting.pop(0)
            frame = self._frame(deadline, None)
            answered_id, body = read_response_header(frame, 0, ApiKey.API_VERSIONS, version)
            if answered_id != correlation_id:
                raise self._broken("what listens there does not speak Kafka's protocol")
            try:
                response = read_versions(frame, body, version)
            except MalformedError as error:
                raise self._broken(f"what listens there does not speak Kafka's protocol: {error}") from error
            if response is not None:
                break
        assert response is not None, "version 0 is always read"
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"{self.address} does not tell its versions")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    def _frame(self, deadline: float, room: Callable[[int], bytearray] | None) -> memoryview:
        self._read(memoryview(self._buffer)[:4], deadline)
        (size,) = _SIZE.unpack_from(self._buffer)
        if not 4 <= size <= self._options.response_bytes_max:
            raise self._broken(f"an answer claims {size} bytes; 4 to {self._options.response_bytes_max} are accepted")
        if room is not None:
            view = memoryview(room(size))[:size]
        else:
            if size > len(self._buffer):
                self._buffer = bytearray(size)
            view = memoryview(self._buffer)[:size]
        self._read(view, deadline)
        return view

    def _read(self, view: memoryview, deadline: float) -> None:
        pos, end = 0, len(view)
        try:
            while pos < end:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError("no answer in time")
                self._socket.settimeout(left_s)
                count = self._socket.recv_into(view[pos:])
                if not count:
                    raise ConnectionResetError("the broker closed the connection")
                pos += count
        except OSError as error:
            raise self._broken(error) from error

    def _broken(self, why: object) -> Lost:
        self.close()
        return Lost(self.address, why)
