"""The answers of one connection, in the order of their requests.

An answer is ready at once or comes later; one that is late holds back those behind it. A request whose effects may
still come also stops the connection from reading on, as Kafka does, so that the order of effects is the order of
requests. Once a produce request has appended, only its acknowledgement is missing: then the next one may begin.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from tidelog.env.network import Socket


class Sendable(Protocol):
    """Part of an answer that is sent from where it lies: a slice of a log."""

    def __len__(self) -> int: ...

    def view(self) -> memoryview: ...

    def send(self, sock: Socket, sent: int) -> int: ...

    def distrust(self) -> None:
        """Its bytes couldn't be had."""
        ...


Answer: TypeAlias = "bytes | list[bytes | memoryview | Sendable] | None"


class Slot:
    """The place of one answer that comes later, and how far its request is:

    - under way: it may still change something, and the requests behind it wait;
    - appended (`runs_ahead`): whatever it changes is changed, and the requests behind it may run ahead of its answer;
    - answered (`ready`): `complete` was called, once. None: the request gets no answer.

    Neither call raises: whoever waits next to this one must hear of its answer whatever happens here.
    """

    __slots__ = ("_close", "_let_go_on", "_tell_ready", "answer", "late", "ready", "runs_ahead")

    def __init__(
        self,
        tell_ready: Callable[[], None],
        let_go_on: Callable[[], None],
        close: Callable[[str], None],
        late: "Late | None",
        *,
        runs_ahead: bool,
    ) -> None:
        self._tell_ready = tell_ready
        self._let_go_on = let_go_on
        self._close = close
        self.late = late
        self.answer: Answer = None
        self.ready = False
        self.runs_ahead = runs_ahead

    def appended(self) -> None:
        """The request has no more effects: those behind it go on. May be left out before `complete`."""
        if not self.runs_ahead:
            self.runs_ahead = True
            self._let_go_on()

    def complete(self, answer: Answer) -> None:
        assert not self.ready, "a request is answered once"
        self.answer = answer
        self.ready = True
        self._tell_ready()

    def fail(self, reason: str) -> None:
        """There can be no answer, so that the connection can't go on."""
        self._close(reason)


class Late(Protocol):
    """What a handler gives back when its answer comes later. `runs_ahead`: it has appended already."""

    runs_ahead: bool

    def begin(self, slot: Slot) -> None: ...

    def abandon(self) -> None:
        """The connection has gone: nobody waits for the answer any more."""
        ...


def joined(answers: list[Answer]) -> list[Answer]:
    """Neighbouring answers of plain bytes as one."""
    if len(answers) == 1:
        return answers
    joined: list[Answer] = []
    plain: list[bytes] = []
    for answer in answers:
        if isinstance(answer, bytes):
            plain.append(answer)
        elif answer is not None:
            if plain:
                joined.append(b"".join(plain))
                plain = []
            joined.append(answer)
    if plain:
        joined.append(b"".join(plain))
    return joined
