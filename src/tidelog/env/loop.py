"""The event loop: callbacks, timers, readiness of sockets, and work that would block."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tidelog.env.network import Socket
from tidelog.env.promise import Promise
from tidelog.env.slices import HEAVY, LIGHT, Steps, Weight
from tidelog.env.turns import TurnWatch

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """One thread runs all callbacks, one after the other.

    `alone`, while the reader of a socket is called: nothing else is ready, so that whatever it would put off until the
    others had their turn may as well be done at once. `turns` counts the turns; in each, all that is
    ready is called once.
    """

    alone: bool
    turns: int
    watch: TurnWatch

    def call_soon(self, callback: Callable[..., None], *args: Any) -> object: ...

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer: ...

    def spread(self, steps: Steps[T]) -> Promise[T]:
        """Advance `steps` by a slice of time a turn, in turn with others that are spread; what it returns or raises."""
        ...

    def drive(self, steps: Steps[T], weight: Weight = LIGHT) -> Promise[T]:
        """As `spread`, beginning at once: whatever ends within a slice needs no turn. So does what waits for a promise
        and has little to do then, however much else is spread. Where a turn has no time for more beginnings, its weight
        says when it has its turn."""
        ...

    def begin(self, steps: Steps[T]) -> tuple[bool, T | None]:
        """Advance `steps` at once, by a slice. Whether that was the end of it, and what it returned then; what is left
        is for `spread`."""
        ...

    def call_in_turn(self, callback: Callable[[], None], weight: Weight = HEAVY) -> None:
        """As `call_soon`, in turn with what is spread: one after the other, as a slice of the turn has room.

        What is light comes before what is new, and that before what is heavy; each has its part of a turn.
        """
        ...

    def run_blocking(self, work: Callable[[], T]) -> Promise[T]:
        """Run `work` off the loop (it must share no state with it); the promise is settled on the loop."""
        ...

    def add_reader(self, sock: Socket, callback: Callable[[], None]) -> None: ...

    def remove_reader(self, sock: Socket) -> None: ...

    def add_writer(self, sock: Socket, callback: Callable[[], None]) -> None: ...

    def remove_writer(self, sock: Socket) -> None: ...
