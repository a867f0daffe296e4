"""Asking another node from the loop: nothing here blocks, and everything has a deadline and a bound.

    peers = Peers(env, "raft", client_id="raft-client-1")
    peers.at(2, "node2", 9093).ask(VoteRequest(...), timeout_ms=1000).on_done(...)

Each purpose (raft, control, replication, markers) has its own `Peers` and so its own connections: one never waits
behind the other. A connection is made when something is asked. It breaks when the other side ends it, doesn't answer in
time or is confused (`exchange.py`): whatever was asked on it fails at once with `Lost`, and with `Unsent` where it
never left. Both may be tried again by whoever asked. The next try to connect waits for a while that grows with each
failure; what is asked meanwhile waits for it, within its deadline.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from tidelog.env import Environment
from tidelog.env.loop import Timer
from tidelog.env.network import Socket
from tidelog.env.promise import Promise
from tidelog.rpc import bounds
from tidelog.rpc.address import Address
from tidelog.rpc.errors import Lost, Unsent, Unsupported
from tidelog.rpc.exchange import Answered, Asked, Confused, Exchange
from tidelog.wire.codec import decode_steps, decoder
from tidelog.wire.errors import KafkaError, MalformedError


class State(Enum):
    IDLE = "no connection, and nothing to ask"
    BACKING_OFF = "waits before the next try to connect"
    CONNECTING = "connects"
    GREETING = "agrees on versions"
    READY = "asks"
    CLOSED = "asks nothing any more"


class Question:
    """A request from `ask` to its answer. `sent` once a byte of it may have left."""

    __slots__ = ("promise", "request", "sent", "timer")

    def __init__(self, request: object) -> None:
        self.request = request
        self.promise: Promise[Any] = Promise()
        self.sent = False
        self.timer: Timer | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """Who wants to know of connections, by the other node's id. Those that this side closes aren't told."""

    connected: Callable[[int], None] = lambda node_id: None
    broken: Callable[[int, Lost], None] = lambda node_id, error: None


class Peer:
    """Another node, for one purpose, at one address."""

    def __init__(
        self,
        env: Environment,
        node_id: int,
        address: Address,
        purpose: str,
        client_id: str,
        watch: Watch,
        setup_s: float,
    ) -> None:
        self.address = address
        self.state = State.IDLE
        self._env = env
        self._loop = env.loop
        self._node_id = node_id
        self._name = f"{address} ({purpose})" if node_id < 0 else f"node {node_id} at {address} ({purpose})"
        self._client_id = client_id
        self._watch = watch
        self._setup_s = setup_s
        self._queued: deque[Question] = deque()
        self._in_flight: dict[Question, None] = {}
        self._failures = 0
        self._timer: Timer | None = None
        self._attempt = 0
        self._sock: Socket | None = None
        self._writing = False
        self._exchange = self._new_exchange()
        self._unsent = bytearray()
        self._buffer = memoryview(b"")
        self._answers: deque[Answered] = deque()
        self._decoding = False

    def __str__(self) -> str:
        return self._name

    def ask(self, request: object, timeout_ms: int) -> Promise[Any]:
        """The answer, as the message beside the request's. It fails with `Lost`, `Unsent` or `Unsupported`.

        An answer that doesn't come in time ends the connection: those behind it would wait for it, too.
        """
        question = Question(request)
        if self.state is State.CLOSED:
            question.promise.fail(Unsent(self, "it is closed"))
        elif len(self._queued) + len(self._in_flight) >= bounds.PEER_REQUESTS_MAX:
            question.promise.fail(Unsent(self, f"{bounds.PEER_REQUESTS_MAX} requests wait already"))
        else:
            question.timer = self._loop.call_later(timeout_ms / 1000, self._late, question, timeout_ms)
            self._queued.append(question)
            if self.state is State.IDLE:
                self._connect()
            elif self.state is State.READY:
                self._send_queued()
        return question.promise

    def close(self, *, take_back: bool = True) -> None:
        """End the connection, if there is one; what waits fails, and is taken back unless it is a last word."""
        if self.state is not State.CLOSED:
            self._end(Lost(self, "it was closed on this side"), State.CLOSED, take_back=take_back)

    # -- connecting

    def _new_exchange(self) -> Exchange:
        return Exchange(self._client_id, self._name, bounds.PEER_ANSWER_BYTES_MAX)

    def _connect(self) -> None:
        self.state = State.CONNECTING
        self._attempt += 1
        self._timer = self._loop.call_later(self._setup_s, self._setup_late)
        host, port = self.address
        self._env.network.connect(self._loop, host, port, self._setup_s).on_done(
            partial(self._connected, self._attempt)
        )

    def _connected(self, attempt: int, promise: Promise[Socket]) -> None:
        if attempt != self._attempt or self.state is not State.CONNECTING:  # nobody waits for it any more
            if promise.error is None:
                promise.result().close()
            return
        if promise.error is not None:
            self._broken(f"can't connect: {promise.error}")
            return
        self.state = State.GREETING
        self._sock = promise.result()
        self._buffer = memoryview(bytearray(bounds.PEER_READ_BYTES))
        self._loop.add_reader(self._sock, self._readable)
        self._unsent += self._exchange.greet()
        self._flush()

    def _setup_late(self) -> None:
        self._broken(f"no connection, or no versions, within {self._setup_s:g} s")

    def _agreed(self) -> None:
        self.state = State.READY
        self._failures = 0
        self._cancel_timer()
        self._watch.connected(self._node_id)
        self._send_queued()

    def _backed_off(self) -> None:
        self._timer = None
        if self._queued:
            self._connect()
        else:
            self.state = State.IDLE

    # -- sending

    def _send_queued(self) -> None:
        while self.state is State.READY and self._queued and len(self._unsent) < bounds.PEER_UNSENT_BYTES:
            question = self._queued.popleft()
            try:
                self._unsent += self._exchange.ask(question.request, question)
            except (Unsupported, KafkaError, ValueError, OverflowError) as error:  # of this request, and no other
                self._settle(question, error)
                continue
            question.sent = True
            self._in_flight[question] = None
        self._flush()

    def _flush(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            while self._unsent:
                del self._unsent[: sock.send(self._unsent)]
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(sock, self._writable)
        except OSError as error:
            self._broken(error)
        else:
            if self._writing:
                self._writing = False
                self._loop.remove_writer(sock)

    def _writable(self) -> None:
        self._flush()
        if len(self._unsent) < bounds.PEER_UNSENT_BYTES:
            self._send_queued()

    # -- receiving

    def _readable(self) -> None:
        sock = self._sock
        assert sock is not None
        try:
            room = self._exchange.room
            count = sock.recv_into(room or self._buffer)
            if not count:
                raise ConnectionResetError("it closed the connection")
            if room:
                answers, reply = self._exchange.filled(count), b""
            else:
                answers, reply = self._exchange.receive(self._buffer[:count])
        except BlockingIOError:
            return
        except (OSError, Confused) as error:
            self._broken(error)
            return
        if reply:
            self._unsent += reply
            self._flush()
        if self.state is State.GREETING and self._exchange.agreed:
            self._agreed()
        self._answers += answers
        self._decode()

    def _decode(self) -> None:
        """Hand out the answers in their order; those behind a large one, which takes several turns, wait for it."""
        while self._answers and not self._decoding:
            answered = self._answers.popleft()
            asked = answered.asked
            if len(answered.frame) >= bounds.PEER_STEPS_FROM_BYTES:
                self._decoding = True
                steps = decode_steps(asked.response, asked.version)(memoryview(answered.frame), answered.pos)
                self._loop.drive(steps).on_done(partial(self._decoded, self._attempt, asked))
                continue
            try:
                response, _ = decoder(asked.response, asked.version)(memoryview(answered.frame), answered.pos)
            except MalformedError as error:
                self._broken(f"an answer that can't be read: {error}")
                return
            self._answer(asked, response)

    def _decoded(self, attempt: int, asked: Asked, promise: Promise[tuple[Any, int]]) -> None:
        if attempt != self._attempt or self.state is not State.READY:
            return  # it was told that the connection broke
        self._decoding = False
        if promise.error is not None:
            self._broken(f"an answer that can't be read: {promise.error}")
            return
        self._answer(asked, promise.result()[0])
        self._decode()

    def _answer(self, asked: Asked, response: object) -> None:
        question = asked.token
        assert isinstance(question, Question)
        self._in_flight.pop(question)
        _stop(question)
        question.promise.resolve(response)
        if self.state is State.READY:
            self._send_queued()

    # -- ends

    def _late(self, question: Question, timeout_ms: int) -> None:
        question.timer = None
        if question.sent:
            self._broken(f"no answer to {type(question.request).__name__} within {timeout_ms} ms")
        else:
            self._queued.remove(question)
            question.promise.fail(Unsent(self, f"no connection within {timeout_ms} ms: it {self.state.value}"))

    def _broken(self, why: object) -> None:
        """Fail what was asked, and wait before the next try."""
        error = Lost(self, why)
        told = self.state is State.READY
        self._end(error, State.BACKING_OFF)
        if told:
            self._watch.broken(self._node_id, error)

    def _end(self, error: Lost, then: State, *, take_back: bool = True) -> None:
        self.state = then
        self._attempt += 1
        self._cancel_timer()
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_reader(sock)
            if self._writing:
                self._loop.remove_writer(sock)
            if take_back and self._in_flight:  # who asked is told that it is lost: it must not be carried out later
                self._env.network.abandon(sock)
            else:
                sock.close()
        self._writing = self._decoding = False
        self._unsent, self._buffer = bytearray(), memoryview(b"")
        self._answers.clear()
        self._exchange = self._new_exchange()
        waiting = [*self._in_flight, *self._queued]
        self._in_flight.clear()
        self._queued.clear()
        if then is State.BACKING_OFF:
            self._timer = self._loop.call_later(self._backoff_s(), self._backed_off)
        for question in waiting:  # each may ask again at once
            self._settle(question, error if question.sent else Unsent(error.address, error.why))

    def _backoff_s(self) -> float:
        base_s = min(bounds.PEER_BACKOFF_S_MAX, bounds.PEER_BACKOFF_S * 2 ** min(self._failures, 16))
        self._failures += 1
        return base_s * self._env.random.random_int(800, 1200) / 1000

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle(self, question: Question, error: Exception) -> None:
        _stop(question)
        question.promise.fail(error)


def _stop(question: Question) -> None:
    if question.timer is not None:
        question.timer.cancel()
        question.timer = None


class Peers:
    """The nodes that are asked for one purpose, each at the address where it was last said to be."""

    def __init__(
        self,
        env: Environment,
        purpose: str,
        client_id: str,
        *,
        watch: Watch | None = None,
        setup_s: float = bounds.PEER_SETUP_S,
    ) -> None:
        self._env = env
        self._purpose = purpose
        self._client_id = client_id
        self._watch = watch or Watch()
        self._setup_s = setup_s
        self._peers: dict[int, Peer] = {}

    def at(self, node_id: int, host: str, port: int) -> Peer:
        """The node at this address. Where it was at another one, that connection is closed."""
        address = Address(host, port)
        known = self._peers.get(node_id)
        if known is not None and known.address == address:
            return known
        peer = Peer(self._env, node_id, address, self._purpose, self._client_id, self._watch, self._setup_s)
        self._peers[node_id] = peer
        if known is not None:
            known.close()
        return peer

    def forget(self, node_id: int) -> None:
        """End what was asked of this node, if anything was: it is no longer the one to ask."""
        peer = self._peers.pop(node_id, None)
        if peer is not None:
            peer.close()

    def close(self) -> None:
        """Nobody is asked any more. What was said last arrives: that this node leads no longer, say."""
        for peer in list(self._peers.values()):
            peer.close(take_back=False)
        self._peers.clear()
