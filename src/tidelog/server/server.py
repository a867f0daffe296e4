"""The listeners and all their connections, within bounds: how many, from where, how fast, how long idle."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.server.bounds import (
    ACCEPTS_PER_EVENT,
    HANDLING_S_A_TURN,
    REQUEST_BYTES_PER_S_MIN,
    REQUEST_DEADLINE_S,
    SWEEP_S,
)
from tidelog.server.buffers import Buffers
from tidelog.server.connection import Connection

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Services
    from tidelog.env.network import Listener, Socket
    from tidelog.server.dispatch import Dispatch

log = logging.getLogger("tidelog.server")

BUFFERS_LOOK_S = 0.01


class Server:
    """Accepts connections and looks after them. `dispatch` answers their requests."""

    def __init__(self, services: Services, dispatch: Dispatch, on_broken: Callable[[int], None] | None = None) -> None:
        """`on_broken` is told the number of a connection that the other side ended, and not this one."""
        env, config = services.env, services.config
        self.loop = env.loop
        self.now = env.clock.monotonic
        self._turn = 0
        self._turn_s = 0.0
        self._clock = env.clock
        self._network = env.network
        self._services = services
        self.buffers = Buffers(config.queued_max_request_bytes)
        self.frame_bytes_max = config.socket_request_max_bytes
        self.requests_max = config.queued_max_requests
        self.dispatch = dispatch.handle
        self.dispatch_alike = dispatch.handle_alike
        self.begin_ahead = dispatch.begin_ahead
        self._connections: dict[int, Connection] = {}
        self._per_address: Counter[str] = Counter()
        self._next_id = 0
        self._listeners: dict[str, Listener] = {}
        self._accepting = False
        self._waiting_for_buffers: deque[Connection] = deque()
        self._lending = False
        self._accept_allowance = 0.0
        self._accept_counted = 0.0
        self._stopping = False
        self._on_broken = on_broken

    def listen(self, name: str, host: str, port: int) -> Listener:
        """Bind a listener; it accepts from `start` on. Raises OSError."""
        config = self._services.config
        given = config.is_given("socket.receive.buffer.bytes")
        listener = self._listeners[name] = self._network.listen(
            host,
            port,
            config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes if given else -1,
        )
        return listener

    def start(self) -> None:
        self._accept_counted = self._clock.monotonic()
        self._accept_allowance = float(self._services.config.max_connection_creation_rate)
        self._watch_listeners()
        self.loop.call_later(SWEEP_S, self._sweep)

    @property
    def connections(self) -> int:
        return len(self._connections)

    def stop_accepting(self) -> None:
        """No new connections and no new requests; what was accepted is still answered."""
        self._stopping = True
        self._unwatch_listeners()
        for listener in self._listeners.values():
            listener.close()
        for connection in list(self._connections.values()):
            connection.stop_reading()

    @property
    def busy(self) -> bool:
        return any(connection.busy for connection in self._connections.values())

    def close(self) -> None:
        for connection in list(self._connections.values()):
            connection.close()

    # -- accepting

    def _watch_listeners(self) -> None:
        if self._accepting or self._stopping:
            return
        self._accepting = True
        for name, listener in self._listeners.items():
            for sock in listener.sockets:
                self.loop.add_reader(sock, partial(self._accept, name, listener, sock))

    def _unwatch_listeners(self) -> None:
        if self._accepting:
            self._accepting = False
            for listener in self._listeners.values():
                for sock in listener.sockets:
                    self.loop.remove_reader(sock)

    def _accept(self, name: str, listener: Listener, sock: Socket) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            if len(self._connections) >= self._services.config.max_connections:
                log.warning("%d connections are open (max.connections): new ones wait", len(self._connections))
                self._unwatch_listeners()
                return
            if not self._may_accept():
                return
            try:
                accepted = listener.accept(sock)
            except OSError as error:
                log.error("can't accept a connection on %s: %s; trying again in a second", name, error)
                self._pause_accepting(1.0)
                return
            if accepted is None:
                return
            self._welcome(name, *accepted)

    def _may_accept(self) -> bool:
        """Whether max.connection.creation.rate leaves room for one more now."""
        rate = self._services.config.max_connection_creation_rate
        if rate >= 2**31 - 1:
            return True
        now = self._clock.monotonic()
        self._accept_allowance = min(rate, self._accept_allowance + (now - self._accept_counted) * rate)
        self._accept_counted = now
        if self._accept_allowance < 1:
            self._pause_accepting((1 - self._accept_allowance) / max(rate, 1))
            return False
        self._accept_allowance -= 1
        return True

    def _pause_accepting(self, delay_s: float) -> None:
        self._unwatch_listeners()
        self.loop.call_later(delay_s, self._watch_listeners)

    def _welcome(self, listener: str, sock: Socket, peer: str) -> None:
        config = self._services.config
        limit = config.connection_limits.get(peer, config.max_connections_per_ip)
        if self._per_address[peer] >= limit:
            log.warning("%s has %d connections already (max.connections.per.ip): closed the new one", peer, limit)
            sock.close()
            return
        self._next_id += 1
        connection = Connection(self, sock, peer, listener, self._next_id, self._clock.monotonic())
        self._connections[connection.id] = connection
        self._per_address[peer] += 1
        log.debug("connection %d from %s on %s", connection.id, peer, listener)

    # -- what connections ask of their host

    def may_handle(self) -> bool:
        return self._turn != self.loop.turns or self._turn_s < HANDLING_S_A_TURN

    def spent(self, seconds: float) -> None:
        if self._turn != self.loop.turns:
            self._turn, self._turn_s = self.loop.turns, 0.0
        self._turn_s += seconds

    def wait_for_buffers(self, connection: Connection) -> None:
        self._waiting_for_buffers.append(connection)
        if not self._lending:
            self._lending = True
            self.loop.call_later(BUFFERS_LOOK_S, self._lend_buffers)

    def _lend_buffers(self) -> None:
        for _ in range(len(self._waiting_for_buffers)):
            if self.buffers.exhausted():
                break
            self._waiting_for_buffers.popleft().buffers_free()  # it may have to wait again
        self._lending = bool(self._waiting_for_buffers)
        if self._lending:
            self.loop.call_later(BUFFERS_LOOK_S, self._lend_buffers)

    def broken(self, connection: Connection) -> None:
        if self._on_broken is not None:
            self._on_broken(connection.id)

    def closed(self, connection: Connection, reason: str | None) -> None:
        if reason is not None:
            log.warning("closed the connection of %s on %s: %s", connection.peer, connection.listener, reason)
        if self._connections.pop(connection.id, None) is None:
            return
        log.debug("connection %d from %s on %s is closed", connection.id, connection.peer, connection.listener)
        self._per_address[connection.peer] -= 1
        if not self._per_address[connection.peer]:
            del self._per_address[connection.peer]
        if len(self._connections) < self._services.config.max_connections:
            self._watch_listeners()

    # -- the sweep

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        idle_s = self._services.config.connections_max_idle_ms / 1000
        for connection in list(self._connections.values()):
            if connection.stirred():
                connection.seen_active = now
            elif now - connection.seen_active > idle_s > 0 and not connection.owes_answer:
                connection.close()
                continue
            connection.look_for_peer()
            began = connection.frame_began(now)
            if began is None:
                continue
            if now - began > REQUEST_DEADLINE_S + connection.frame_filled / REQUEST_BYTES_PER_S_MIN:
                connection.close(f"a request took too long to arrive: {connection.frame_filled} bytes have come")
        if len(self._connections) < self._services.config.max_connections:  # which may have risen meanwhile
            self._watch_listeners()
        if not self._stopping:
            self.loop.call_later(SWEEP_S, self._sweep)
