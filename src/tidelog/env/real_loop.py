"""The real loop: asyncio's selector loop, and a few threads for what would block it."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from tidelog.env.loop import Timer
from tidelog.env.network import Socket
from tidelog.env.promise import Promise

T = TypeVar("T")

THREADS_MAX = 4


class RealLoop:
    """Callbacks on asyncio's loop. `add_reader` on raw sockets costs a third of what asyncio's protocols do."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: SimpleQueue[tuple[Callable[[], Any], Promise[Any]]] = SimpleQueue()
        self._threads = 0
        self._busy = 0
        self.call_soon = loop.call_soon

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer:
        return self._loop.call_later(delay_s, callback, *args)

    def run_blocking(self, work: Callable[[], T]) -> Promise[T]:
        promise: Promise[T] = Promise()
        self._busy += 1
        if self._busy > self._threads and self._threads < THREADS_MAX:
            self._threads += 1
            threading.Thread(target=self._serve, name=f"tidelog-blocking-{self._threads}", daemon=True).start()
        self._work.put((work, promise))
        return promise

    def _serve(self) -> None:
        while True:
            work, promise = self._work.get()
            try:
                settle, outcome = promise.resolve, work()
            except BaseException as error:
                settle, outcome = promise.fail, error
            try:
                self._loop.call_soon_threadsafe(self._settle, settle, outcome)
            except RuntimeError:  # the loop was closed meanwhile: nobody waits any more
                return
            del work, promise, settle, outcome

    def _settle(self, settle: Callable[[Any], None], outcome: object) -> None:
        self._busy -= 1
        settle(outcome)

    def add_reader(self, sock: Socket, callback: Callable[[], None]) -> None:
        self._loop.add_reader(cast(Any, sock), callback)

    def remove_reader(self, sock: Socket) -> None:
        self._loop.remove_reader(cast(Any, sock))

    def add_writer(self, sock: Socket, callback: Callable[[], None]) -> None:
        self._loop.add_writer(cast(Any, sock), callback)

    def remove_writer(self, sock: Socket) -> None:
        self._loop.remove_writer(cast(Any, sock))
