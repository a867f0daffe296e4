"""What is asked of other brokers for transactions, gathered: one request at a time to each, with all that waits for it.

Each broker has a queue and a connection of its own, so that nobody waits for a broker but those who want something of
it. What comes while a request is under way goes with the next one: the more there is, the larger requests become. A
queue has a bound. Nothing is tried again here: whoever asked is told, and looks anew for whom to ask.

A broker that is frozen keeps its connections. So when the controller has fenced it, or it is elsewhere by now, all that
waits for it fails at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tidelog.rpc.errors import Lost
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.env import Environment
    from tidelog.env.promise import Promise
    from tidelog.metadata.follow import ChangedTopics, Follower
    from tidelog.metadata.image import BrokerImage, ClusterImage, EndpointImage
    from tidelog.rpc.peer import Peers

Q = TypeVar("Q")

log = logging.getLogger("tidelog.transactions")


class Dialogue(Protocol[Q]):
    """How what is asked becomes a request, and what becomes of its answer."""

    def request(self, waiting: deque[Q]) -> tuple[object, list[Q]]:
        """Take some out of `waiting`, at least one: the request, and what it asks."""
        ...

    def answered(self, asked: list[Q], response: Any) -> None:
        """Settle all of them."""
        ...

    def failed(self, asked: list[Q], error: Exception) -> None:
        """None was answered: a KafkaError where nobody could be asked, else what `Peer.ask` fails with."""
        ...


class BrokerQueues(Generic[Q]):
    """`listener` names the listener for brokers, `timeout_ms` is how long an answer may take."""

    def __init__(
        self,
        env: Environment,
        metadata: Follower,
        peers: Peers,
        dialogue: Dialogue[Q],
        *,
        listener: Callable[[], str],
        timeout_ms: Callable[[], int],
        waiting_max: int,
    ) -> None:
        self.dialogue = dialogue
        self.peers = peers
        self._loop = env.loop
        self._metadata = metadata
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._waiting_max = waiting_max
        self._queues: dict[int, _Queue[Q]] = {}
        self._closed = False
        metadata.subscribe(self._image_changed)

    def ask(self, broker_id: int, asked: Q) -> None:
        """Asked in the next turn of the loop, or when the request that is under way is answered."""
        queue = self._queues.get(broker_id)
        if self._closed or (queue is not None and len(queue.waiting) >= self._waiting_max):
            why = "this broker stops" if self._closed else f"{self._waiting_max} questions wait for it already"
            self.dialogue.failed([asked], KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id}: {why}"))
            return
        if queue is None:
            queue = self._queues[broker_id] = _Queue()
        queue.waiting.append(asked)
        if not queue.busy:
            queue.busy = True
            self._loop.call_soon(self._send, broker_id, queue)

    def close(self) -> None:
        """This broker stops: what waits fails, and nothing more is asked."""
        self._closed = True
        for broker_id in list(self._queues):
            self._drop(broker_id, "this broker stops")
        self.peers.close()

    def waiting(self, broker_id: int) -> int:
        """How many questions wait to be asked of a broker."""
        queue = self._queues.get(broker_id)
        return 0 if queue is None else len(queue.waiting)

    def _send(self, broker_id: int, queue: _Queue[Q]) -> None:
        if not queue.waiting:
            queue.busy = False
            if self._queues.get(broker_id) is queue:
                del self._queues[broker_id]
            return
        image = self._metadata.image
        endpoint = reached_at(image.brokers.get(broker_id), self._listener())
        if endpoint is None:
            queue.busy = False
            self._drop(broker_id, "it isn't there")
            return
        request, asked = self.dialogue.request(queue.waiting)
        peer = self.peers.at(broker_id, endpoint.host, endpoint.port)
        peer.ask(request, self._timeout_ms()).on_done(partial(self._done, broker_id, queue, asked))

    def _done(self, broker_id: int, queue: _Queue[Q], asked: list[Q], promise: Promise[Any]) -> None:
        self._loop.call_soon(self._send, broker_id, queue)
        error = promise.error
        if error is None:
            queue.troubled = False
            self.dialogue.answered(asked, promise.result())
            return
        if not queue.troubled:
            queue.troubled = True
            log.warning("what transactions need of broker %d is asked again: %s", broker_id, error)
        left: list[Q] = list(asked)
        if isinstance(error, Lost):  # those behind it have waited as long, and would wait for the next connection
            left += queue.waiting
            queue.waiting.clear()
        assert isinstance(error, Exception)
        self.dialogue.failed(left, error)

    def _drop(self, broker_id: int, why: str) -> None:
        """Nothing more comes of what waits for this broker."""
        queue = self._queues.get(broker_id)
        if queue is not None:
            waiting = list(queue.waiting)
            queue.waiting.clear()
            if not queue.busy:
                del self._queues[broker_id]
            if waiting:
                self.dialogue.failed(waiting, KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id}: {why}"))

    def _image_changed(
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed: set[tuple[int, str]]
    ) -> None:
        if old.brokers is new.brokers or not self._queues:
            return
        for broker_id in list(self._queues):
            before, after = old.brokers.get(broker_id), new.brokers.get(broker_id)
            if before is not after and (reached_at(after, self._listener()) is None or _began_anew(before, after)):
                # Not from within what publishes: whoever is told looks at the image for another one to ask.
                self._loop.call_soon(self._lost, broker_id)

    def _lost(self, broker_id: int) -> None:
        self._drop(broker_id, "it is no longer there")
        self.peers.forget(broker_id)


class _Queue(Generic[Q]):
    """`busy` while a request is under way, or about to be made; `troubled` since the last one failed."""

    __slots__ = ("busy", "troubled", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Q] = deque()
        self.busy = False
        self.troubled = False


def reached_at(broker: BrokerImage | None, listener: str) -> EndpointImage | None:
    """Where a broker that isn't fenced is reached by other brokers."""
    if broker is None or broker.fenced:
        return None
    return next((endpoint for endpoint in broker.endpoints if endpoint.name == listener), None)


def _began_anew(before: BrokerImage | None, after: BrokerImage | None) -> bool:
    return before is not None and after is not None and before.incarnation_id != after.incarnation_id
