"""What is said on one connection between nodes, without the connection: bytes in, bytes out.

ApiVersions comes first; requests follow, in the newest version that both sides know. Kafka answers a connection's
requests in their order, so that the next answer has the correlation id of the oldest request: any other one means that
nothing of this connection can be trusted, and the same holds for a length that no answer has, and for bytes that can't
be read. All that is a Confused error, after which the exchange is of no more use.
"""

from collections import deque
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tidelog.rpc.versions import FIRST_VERSION, agreed, greeting, read_versions
from tidelog.wire.codec import declaration, encoder
from tidelog.wire.errors import ErrorCode, MalformedError
from tidelog.wire.frame import SIZE_BYTES, framed
from tidelog.wire.header import read_response_header, request_header
from tidelog.wire.keys import ApiKey

_LEAST_BYTES = 4
"""Of an answer: its correlation id."""
LONG_BYTES = 256 * 1024
"""An answer from here on is read into a place of its own."""


class Confused(Exception):
    """The other side doesn't keep to the protocol."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that waits for its answer, and who asked."""

    correlation_id: int
    key: int
    version: int
    response: type[Any]
    token: object


@dataclass(frozen=True, slots=True)
class Answered:
    """The frame that answers `asked`, and where in it the answer begins."""

    asked: Asked
    frame: bytes | memoryview
    pos: int


class Exchange:
    def __init__(self, client_id: str, where: str, answer_bytes_max: int) -> None:
        self.agreed = False
        self._client_id = client_id
        self._where = where
        self._answer_bytes_max = answer_bytes_max
        self._served: dict[int, tuple[int, int]] = {}
        self._greeted = FIRST_VERSION
        self._next_id = 0
        self._asked: deque[Asked] = deque()
        self._held = bytearray()
        self._long = memoryview(b"")
        self._filled = 0

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    def greet(self, version: int = FIRST_VERSION) -> bytes:
        self._greeted = version
        self._next_id += 1
        return framed(request_header(ApiKey.API_VERSIONS, version, self._next_id, self._client_id), greeting(version))

    def ask(self, request: object, token: object) -> bytes:
        """The bytes of a request. Unsupported where no version is known to both sides; then nothing has happened."""
        assert self.agreed, "versions are agreed on first"
        cls = type(request)
        key = declaration(cls).key
        assert key is not None, "a message, not a part of one"
        version = agreed(self._served, key, self._where)
        body = encoder(cls, version)(request)
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        self._asked.append(Asked(self._next_id, key, version, response_of(cls), token))
        return framed(request_header(key, version, self._next_id, self._client_id), body)

    @property
    def room(self) -> memoryview:
        """Where the rest of a long answer goes that has begun: whoever reads there, and tells `filled`, copies nothing.
        Empty where there is none: what comes is for `receive`."""
        return self._long[self._filled :]

    def filled(self, count: int) -> list[Answered]:
        """So many bytes more of the long answer are there; the answer, where that completes it."""
        self._filled += count
        if self._filled < len(self._long):
            return []
        frame, self._long, self._filled = self._long, memoryview(b""), 0
        try:
            return [self._answer(frame)]
        except MalformedError as error:
            raise Confused(f"an answer that can't be read: {error}") from error

    def receive(self, data: bytes | memoryview) -> tuple[list[Answered], bytes]:
        """The answers that `data` completes, and what is to be sent at once: another greeting, perhaps."""
        self._held += data
        answers: list[Answered] = []
        reply = b""
        while (frame := self._next_frame()) is not None:
            try:
                if not self.agreed:
                    reply += self._greeted_back(frame)
                else:
                    answers.append(self._answer(frame))
            except MalformedError as error:
                raise Confused(f"an answer that can't be read: {error}") from error
        return answers, reply

    def _next_frame(self) -> bytes | None:
        held = self._held
        assert not self._long, "the rest of a long answer comes first"
        if len(held) < SIZE_BYTES:
            return None
        size = int.from_bytes(held[:SIZE_BYTES], "big", signed=True)
        if not _LEAST_BYTES <= size <= self._answer_bytes_max:
            raise Confused(f"an answer claims {size} bytes; {_LEAST_BYTES} to {self._answer_bytes_max} are accepted")
        if self.agreed and not self._asked:
            raise Confused("an answer came to which there is no request")
        if len(held) < SIZE_BYTES + size:
            if size >= LONG_BYTES and self.agreed:
                self._long = memoryview(bytearray(size))
                self._filled = len(held) - SIZE_BYTES
                self._long[: self._filled] = held[SIZE_BYTES:]
                held.clear()
            return None
        frame = bytes(memoryview(held)[SIZE_BYTES : SIZE_BYTES + size])
        del held[: SIZE_BYTES + size]
        return frame

    def _greeted_back(self, frame: bytes) -> bytes:
        answered_id, pos = read_response_header(frame, 0, ApiKey.API_VERSIONS, self._greeted)
        self._check_id(answered_id, self._next_id)
        response = read_versions(frame, pos, self._greeted)
        if response is None:
            return self.greet(0)
        if response.error_code:
            raise Confused(f"it does not tell its versions: {_error_name(response.error_code)}")
        self._served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self.agreed = True
        return b""

    def _answer(self, frame: bytes | memoryview) -> Answered:
        asked = self._asked.popleft()
        answered_id, pos = read_response_header(frame, 0, asked.key, asked.version)
        self._check_id(answered_id, asked.correlation_id)
        return Answered(asked, frame, pos)

    def _check_id(self, answered_id: int, expected: int) -> None:
        if answered_id != expected:
            raise Confused(f"answer {answered_id} came where {expected} was expected")


def response_of(request: type[Any]) -> type[Any]:
    """The message that answers this one: it stands beside it."""
    return getattr(import_module(request.__module__), request.__name__.removesuffix("Request") + "Response")


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
