"""The event loop: callbacks, timers, readiness of sockets, and work that would block."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tidelog.env.network import Socket
from tidelog.env.promise import Promise

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """One thread runs all callbacks, one after the other.

    `alone`, while the reader of a socket is called: nothing else is ready, so that whatever it would put off until the
    others had their turn may as well be done at once.
    """

    alone: bool

    def call_soon(self, callback: Callable[..., None], *args: Any) -> object: ...

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer: ...

    def run_blocking(self, work: Callable[[], T]) -> Promise[T]:
        """Run `work` off the loop (it must share no state with it); the promise is settled on the loop."""
        ...

    def add_reader(self, sock: Socket, callback: Callable[[], None]) -> None: ...

    def remove_reader(self, sock: Socket) -> None: ...

    def add_writer(self, sock: Socket, callback: Callable[[], None]) -> None: ...

    def remove_writer(self, sock: Socket) -> None: ...
