"""The answers of one connection, in the order of their requests.

An answer is ready at once or comes later; one that is late holds back those behind it. A request that may take long
also stops the connection from reading on, as Kafka does, so that its order of effects is the order of requests; only
produce requests run ahead of each other's acknowledgements, since their effects are done when they were read.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from tidelog.env.network import Socket


class Sendable(Protocol):
    """Part of an answer that is sent from where it lies: a slice of a log."""

    def __len__(self) -> int: ...

    def view(self) -> memoryview: ...

    def send(self, sock: Socket, sent: int) -> int: ...


Answer: TypeAlias = "bytes | list[bytes | memoryview | Sendable] | None"


class Slot:
    """The place of one answer that comes later. `complete` is called once; None: the request gets no answer.

    Neither call raises: whoever waits next to this one must hear of its answer whatever happens here.
    """

    __slots__ = ("_changed", "_close", "answer", "late", "ready", "runs_ahead")

    def __init__(
        self, changed: Callable[[], None], close: Callable[[str], None], late: "Late | None", *, runs_ahead: bool
    ) -> None:
        self._changed = changed
        self._close = close
        self.late = late
        self.answer: Answer = None
        self.ready = False
        self.runs_ahead = runs_ahead

    def complete(self, answer: Answer) -> None:
        assert not self.ready, "a request is answered once"
        self.answer = answer
        self.ready = True
        self._changed()

    def fail(self, reason: str) -> None:
        """There can be no answer, so that the connection can't go on."""
        self._close(reason)


class Late(Protocol):
    """What a handler gives back when its answer comes later."""

    runs_ahead: bool

    def begin(self, slot: Slot) -> None: ...

    def abandon(self) -> None:
        """The connection has gone: nobody waits for the answer any more."""
        ...


Slots: TypeAlias = deque[Slot]
