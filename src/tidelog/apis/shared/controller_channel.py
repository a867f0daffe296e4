"""What this node asks of the active controller, wherever that is: here, by a plain call, or at another node.

Whoever asks needn't know who leads the metadata log. A request waits for an active controller, and is sent again where
that is no longer one, or its connection broke: also where it may have been carried out already, as Kafka's brokers do.
When another node comes to lead, connections to the one before are closed: what was asked there goes to the new one at
once, and not when its time is over.

A node has one for heartbeats, one for what else it needs, and one for its clients, each with a connection and a bound
of its own: the controller answers a connection's requests in order, and clients may ask for what takes long.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.env.promise import Promise
from tidelog.raft.events import NO_LEADER
from tidelog.rpc.errors import Lost
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.env import Environment
    from tidelog.env.loop import Timer
    from tidelog.raft.node import RaftNode
    from tidelog.rpc.peer import Peers

RETRY_MS = 20
RETRY_MS_MAX = 500
WAITING_MAX = 1000
"""Requests of one channel that may be under way."""


class ControllerChannel:
    """`is_active` says whether this node is the active controller, `call` has it answer a request."""

    def __init__(
        self,
        env: Environment,
        raft: RaftNode,
        peers: Peers,
        is_active: Callable[[], bool],
        call: Callable[[Any], Promise[Any]],
    ) -> None:
        self._env = env
        self._raft = raft
        self._peers = peers
        self._is_active = is_active
        self._call = call
        self._waiting = 0
        self._backing_off: dict[_Ask, Timer] = {}
        self._leader_id = NO_LEADER
        self._closed = False
        self.on_change: Callable[[], None] = lambda: None
        """Called when another node leads: who has to be heard by the active controller is, before it asks why not."""
        raft.driver.watch(self._look)

    @property
    def is_here(self) -> bool:
        """Whether this node is the active controller."""
        return self._is_active()

    def close(self) -> None:
        """Nothing more is asked; what waits fails."""
        self._closed = True
        self._peers.close()

    def ask(self, request: object, timeout_ms: int) -> Promise[Any]:
        """The active controller's answer. Fails with REQUEST_TIMED_OUT where none came in time."""
        promise: Promise[Any] = Promise()
        if self._waiting >= WAITING_MAX:
            promise.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{WAITING_MAX} requests wait for the controller"))
            return promise
        self._waiting += 1
        _Ask(self, request, self._env.clock.monotonic() + timeout_ms / 1000, promise).begin()
        return promise

    def _look(self) -> None:
        leader_id = self._raft.driver.leader_id
        if leader_id != self._leader_id:
            before, self._leader_id = self._leader_id, leader_id
            # Not from within the driver: what is asked at the one before fails at once, and is asked again.
            self._env.loop.call_soon(self._changed, before)

    def _changed(self, before: int) -> None:
        self._peers.forget(before)
        if self._leader_id != NO_LEADER and not self._closed:
            for ask, timer in list(self._backing_off.items()):
                timer.cancel()
                self._begin(ask)
            self.on_change()

    # -- what one request needs

    def attempt(self, request: object, timeout_ms: int) -> Promise[Any] | None:
        """Ask whoever leads now; None where nobody is known to."""
        if self._is_active():
            return self._call(request)
        driver, endpoint = self._raft.driver, self._raft.transport.leader_endpoint
        if endpoint is None or driver.leader_id in (NO_LEADER, driver.local.key.id):
            return None
        return self._peers.at(driver.leader_id, endpoint.host, endpoint.port).ask(request, timeout_ms)

    def try_later(self, ask: _Ask, delay_ms: int) -> None:
        """Try again after a while, or as soon as another node leads."""
        spread_ms = delay_ms + self._env.random.random_int(0, delay_ms)
        self._backing_off[ask] = self._env.loop.call_later(spread_ms / 1000, self._begin, ask)

    def _begin(self, ask: _Ask) -> None:
        self._backing_off.pop(ask, None)
        ask.begin()

    def left_ms(self, deadline: float) -> int:
        return -1 if self._closed else int((deadline - self._env.clock.monotonic()) * 1000)

    def settle(self, promise: Promise[Any], error: BaseException | None, answer: Any = None) -> None:
        self._waiting -= 1
        if error is not None:
            promise.fail(error)
        else:
            promise.resolve(answer)


class _Ask:
    """One request, from the first try to its answer."""

    __slots__ = ("_backoff_ms", "_channel", "_deadline", "_promise", "_request", "_why")

    def __init__(self, channel: ControllerChannel, request: object, deadline: float, promise: Promise[Any]) -> None:
        self._channel = channel
        self._request = request
        self._deadline = deadline
        self._promise = promise
        self._backoff_ms = RETRY_MS
        self._why = "no active controller is known"

    def begin(self) -> None:
        channel = self._channel
        left_ms = channel.left_ms(self._deadline)
        if left_ms <= 0:
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the controller did not answer: {self._why}")
            channel.settle(self._promise, error)
            return
        asked = channel.attempt(self._request, left_ms)
        if asked is None:
            self._again(left_ms)
        else:
            asked.on_done(partial(self._answered, left_ms))

    def _answered(self, left_ms: int, asked: Promise[Any]) -> None:
        error = asked.error
        if error is None and getattr(asked.result(), "error_code", 0) != ErrorCode.NOT_CONTROLLER:
            self._channel.settle(self._promise, None, asked.result())
        elif error is None or _passes(error):
            self._why = "the node that was asked isn't the active controller" if error is None else str(error)
            self._again(left_ms)
        else:
            self._channel.settle(self._promise, error)

    def _again(self, left_ms: int) -> None:
        delay_ms, self._backoff_ms = self._backoff_ms, min(2 * self._backoff_ms, RETRY_MS_MAX)
        self._channel.try_later(self, max(1, min(delay_ms, left_ms // 2)))


def _passes(error: BaseException) -> bool:
    """Whether another try may have another end."""
    if isinstance(error, KafkaError):
        return error.code is ErrorCode.NOT_CONTROLLER
    return isinstance(error, Lost)
