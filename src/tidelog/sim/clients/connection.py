"""A Kafka client's connection in the simulated world: requests out, answers back in order, or it is lost."""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.sim.world.loop import SimLoop, SimTimer
from tidelog.sim.world.network import LOOPBACK, SimNetwork
from tidelog.sim.world.socket import SimSocket
from tidelog.wire.codec import decode_whole, encoder
from tidelog.wire.frame import FrameReader, framed
from tidelog.wire.header import read_response_header, request_header
from tidelog.wire.messages.produce import ProduceRequest

T = TypeVar("T")

PORT = 9092
HERE = (LOOPBACK, PORT)
FRAME_BYTES_MAX = 1 << 24
_READ_BYTES = 64 * 1024


class ClientConnection:
    """One connection. `lost` is called once when it breaks; answers that were awaited never come then."""

    def __init__(
        self,
        name: str,
        loop: SimLoop,
        network: SimNetwork,
        lost: Callable[[], None],
        to: tuple[str, int] = HERE,
        source: str = LOOPBACK,
    ) -> None:
        self.name = name
        self._loop = loop
        self._lost = lost
        self._frames = FrameReader(FRAME_BYTES_MAX)
        self._awaited: deque[tuple[int, int, int, type, Callable[[Any], None], SimTimer]] = deque()
        self._unsent = bytearray()
        self._correlation_id = 0
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self.sock: SimSocket | None = network.connect(name, to[1], source, to[0])
        loop.add_reader(self.sock, self._readable)

    def ask(
        self,
        request: object,
        response: type[T],
        key: int,
        version: int,
        answered: Callable[[T], None],
        timeout_s: float = 5.0,
    ) -> None:
        """Send a request; the connection is given up where no answer comes in time."""
        self._send(request, key, version)
        timer = self._loop.call_later(timeout_s, self.close)
        self._awaited.append((self._correlation_id, key, version, response, answered, timer))

    def tell(self, request: ProduceRequest, version: int) -> None:
        """Send a produce request with acks=0, which is never answered."""
        self._send(request, 0, version)

    @property
    def awaited(self) -> int:
        return len(self._awaited)

    def close(self) -> None:
        if self.sock is None:
            return
        self._loop.remove_reader(self.sock)
        self._loop.remove_writer(self.sock)
        self.sock.close()
        self.sock = None
        for *_, timer in self._awaited:
            timer.cancel()
        self._awaited.clear()
        self._lost()

    def _send(self, request: object, key: int, version: int) -> None:
        self._correlation_id += 1
        head = request_header(key, version, self._correlation_id, self.name)
        body = encoder(type(request), version)(request)
        self._unsent += framed(head, body)
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self.sock is None:
            return
        try:
            while self._unsent:
                del self._unsent[: self.sock.send(self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self.sock, self._flush)
        except OSError:
            self.close()
        else:
            self._loop.remove_writer(self.sock)

    def _readable(self) -> None:
        assert self.sock is not None
        try:
            count = self.sock.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not count:
            self.close()
            return
        for frame in self._frames.feed(bytes(self._buffer[:count])):
            self._answer(bytes(frame))

    def _answer(self, frame: bytes) -> None:
        if self.sock is None:  # an answer before this one made the client give up
            return
        correlation_id, key, version, response, answered, timer = self._awaited.popleft()
        timer.cancel()
        answered_id, pos = read_response_header(frame, 0, key, version)
        assert answered_id == correlation_id, f"{self.name} got answer {answered_id} where {correlation_id} comes next"
        answered(decode_whole(response, version, frame[pos:]))
