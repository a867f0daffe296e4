"""The real loop: epoll, timers, and a few threads for what would block.

asyncio's loop would do, but it spends as much on each event (a handle, a context, a selector key) as a small request
costs in all, and importing it takes a fifth of the start: docs/decisions has the figures. What a broker needs of a loop
is this little.
"""

import logging
import os
import select
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from queue import SimpleQueue
from time import monotonic
from types import FrameType
from typing import Any, TypeVar

from tidelog.env.bounds import HELD_S, THREADS_MAX, TURN_S
from tidelog.env.network import Socket
from tidelog.env.promise import Promise
from tidelog.env.slices import HEAVY, LIGHT, Slices, Steps, Weight, steps_of
from tidelog.env.turns import TurnWatch

T = TypeVar("T")

CANCELLED_MAX = 1000
"""Cancelled timers that may lie about; beyond it, and beyond half of all, they are cleared away."""

EVENTS_A_TURN = 64
"""Others that are ready come first in the next turn. Room for them is made each time anew."""

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT

log = logging.getLogger("tidelog.loop")


class RealTimer:
    """A callback to come."""

    __slots__ = ("_loop", "args", "callback", "cancelled", "order", "when")

    def __init__(
        self, loop: "RealLoop", when: float, order: int, callback: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        self._loop = loop
        self.when = when
        self.order = order
        self.callback = callback
        self.args = args
        self.cancelled = False

    def __lt__(self, other: "RealTimer") -> bool:
        return (self.when, self.order) < (other.when, other.order)

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self.callback, self.args = _nothing, ()  # what it would have called may go before its time comes
            self._loop.timer_cancelled()


class RealLoop:
    """One thread runs all callbacks. An exception in one is logged, and the loop goes on."""

    def __init__(self) -> None:
        self.alone = False
        self.turns = 0
        self.watch = TurnWatch()
        self._slices = Slices(self._call)
        self._left: list[tuple[int, int]] = []
        self._ended = monotonic()
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._soon: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._timers: list[RealTimer] = []
        self._timers_made = 0
        self._timers_cancelled = 0
        self._stopping = False
        self._work: SimpleQueue[tuple[Callable[[], Any], Promise[Any]] | None] = SimpleQueue()
        self._done: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._threads = 0
        self._busy = 0
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # rung by threads
        self._watch(self._bell, self._readers, _READ, self._answer_bell)
        self._signals: tuple[socket.socket, socket.socket] | None = None
        self._signal_handlers: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}

    # -- callbacks and timers

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self._soon.append((callback, args))

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> RealTimer:
        self._timers_made += 1
        timer = RealTimer(self, monotonic() + max(delay_s, 0.0), self._timers_made, callback, args)
        heappush(self._timers, timer)
        return timer

    def timer_cancelled(self) -> None:
        self._timers_cancelled += 1
        if self._timers_cancelled > CANCELLED_MAX and self._timers_cancelled > len(self._timers) // 2:
            self._timers = [timer for timer in self._timers if not timer.cancelled]
            heapify(self._timers)
            self._timers_cancelled = 0

    # -- what takes long

    def spread(self, steps: Steps[T]) -> Promise[T]:
        return self._slices.add(steps)

    def drive(self, steps: Steps[T], weight: Weight = LIGHT) -> Promise[T]:
        return self._slices.drive(steps, weight)

    def begin(self, steps: Steps[T]) -> tuple[bool, T | None]:
        return self._slices.begin(steps)

    def call_in_turn(self, callback: Callable[[], None], weight: Weight = HEAVY) -> None:
        self._slices.add(steps_of(callback), weight)

    # -- sockets

    def add_reader(self, sock: Socket, callback: Callable[[], None]) -> None:
        self._watch(sock.fileno(), self._readers, _READ, callback)

    def remove_reader(self, sock: Socket) -> None:
        self._unwatch(sock.fileno(), self._readers, _READ)

    def add_writer(self, sock: Socket, callback: Callable[[], None]) -> None:
        self._watch(sock.fileno(), self._writers, _WRITE, callback)

    def remove_writer(self, sock: Socket) -> None:
        self._unwatch(sock.fileno(), self._writers, _WRITE)

    def _watch(
        self, fd: int, callbacks: dict[int, Callable[[], None]], event: int, callback: Callable[[], None]
    ) -> None:
        callbacks[fd] = callback
        mask = self._masks.get(fd, 0)
        if not mask:
            self._epoll.register(fd, event)
        elif not mask & event:
            self._epoll.modify(fd, mask | event)
        self._masks[fd] = mask | event

    def _unwatch(self, fd: int, callbacks: dict[int, Callable[[], None]], event: int) -> None:
        if callbacks.pop(fd, None) is None:
            return
        mask = self._masks[fd] & ~event
        if mask:
            self._masks[fd] = mask
            self._epoll.modify(fd, mask)
        else:
            del self._masks[fd]
            self._epoll.unregister(fd)

    # -- work that would block

    def run_blocking(self, work: Callable[[], T]) -> Promise[T]:
        promise: Promise[T] = Promise()
        self._busy += 1
        if self._busy > self._threads and self._threads < THREADS_MAX:
            self._threads += 1
            threading.Thread(target=self._serve, name=f"tidelog-blocking-{self._threads}", daemon=True).start()
        self._work.put((work, promise))
        return promise

    def _serve(self) -> None:
        while (job := self._work.get()) is not None:
            work, promise = job
            try:
                settle, outcome = promise.resolve, work()
            except BaseException as error:
                settle, outcome = promise.fail, error
            self._done.append((settle, outcome))
            os.eventfd_write(self._bell, 1)
            del job, work, promise, settle, outcome

    def _answer_bell(self) -> None:
        os.eventfd_read(self._bell)
        while self._done:
            settle, outcome = self._done.popleft()
            self._busy -= 1
            self._call(settle, (outcome,))

    # -- signals

    def add_signal_handler(self, number: int, callback: Callable[..., None], *args: Any) -> None:
        """Call back on the loop when the process gets the signal. For the main thread only."""
        if self._signals is None:
            self._signals = ours, theirs = socket.socketpair()
            ours.setblocking(False)
            theirs.setblocking(False)
            signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
            self._watch(ours.fileno(), self._readers, _READ, self._signalled)
        self._signal_handlers[number] = callback, args
        signal.signal(number, _wake_only)

    def _signalled(self) -> None:
        assert self._signals is not None
        for number in self._signals[0].recv(4096):
            handler = self._signal_handlers.get(number)
            if handler is not None:
                self._call(*handler)

    # -- running

    def run_forever(self) -> None:
        """Until `stop`."""
        self._stopping = False
        while not self._stopping:
            self.run_once()

    def run_until(self, promise: Promise[T], timeout_s: float = 30.0) -> T:
        """Run until the promise is settled, and give its result. TimeoutError where it isn't in time."""
        deadline = self.call_later(timeout_s, lambda: None)
        while not promise.done:
            if monotonic() >= deadline.when:
                raise TimeoutError(f"nothing came within {timeout_s} s")
            self.run_once()
        deadline.cancel()
        return promise.result()

    def run_once(self, *, wait: bool = True) -> None:
        """One turn: callbacks that are due, then sockets, then timers, then a slice of what takes long.

        `wait`: for something, where nothing is due.
        """
        self.turns += 1
        self._slices.new_turn()
        began = at = self._ended
        soon, watch = self._soon, self.watch
        if soon:
            began = at = monotonic()
            for _ in range(len(soon)):
                callback, args = soon.popleft()
                self._call(callback, args)
                now = monotonic()
                if now - at > HELD_S:
                    watch.held(callback, now - at)
                at = now
                if at - began > TURN_S:
                    break
        busy_s = at - began
        events = self._left or self._poll(at, wait=wait)
        self._left = []
        began = at = monotonic()
        if events:
            at = self._handle(events, began - busy_s)
        timers = self._timers
        if timers and timers[0].when <= at:
            at = self._run_timers(at)
        if self._slices:
            self._slices.run()
            now = monotonic()
            if now - at > HELD_S:
                watch.held(self._slices.run, now - at)
            at = now
        busy_s += at - began
        self._ended = at
        if busy_s >= HELD_S or watch.due(at):
            watch.turned(busy_s, at)

    def _poll(self, now: float, *, wait: bool) -> list[tuple[int, int]]:
        if self._soon or self._slices or not wait or self._stopping:
            timeout = 0.0
        elif self._timers:
            timeout = max(0.0, self._timers[0].when - now)
        else:
            timeout = -1
        return self._epoll.poll(timeout, EVENTS_A_TURN)

    def _handle(self, events: list[tuple[int, int]], began: float) -> float:
        """Call who waits for these sockets; the time then. Those whose turn comes too late are left for the next."""
        readers, writers = self._readers, self._writers
        self.alone = len(events) == 1
        at = monotonic()
        for index, (fd, event) in enumerate(events):
            callback = None
            try:
                # A peer that hung up is found by reading or writing, whichever is waited for.
                if event & ~_WRITE and (callback := readers.get(fd)) is not None:
                    callback()
                if event & ~_READ and (callback := writers.get(fd)) is not None:
                    callback()
            except Exception:
                log.exception("a callback for a socket failed")
            now = monotonic()
            if callback is not None and now - at > HELD_S:
                self.watch.held(callback, now - at)
            at = now
            if at - began > TURN_S:
                self._left = events[index + 1 :]
                break
        return at

    def _run_timers(self, at: float) -> float:
        """Call those that are due by now; the time then."""
        timers, began = self._timers, at
        while timers and timers[0].when <= began:
            timer = heappop(timers)
            if timer.cancelled:
                self._timers_cancelled -= 1
                continue
            timer.cancelled = True
            callback = timer.callback
            self._call(callback, timer.args)
            now = monotonic()
            if now - at > HELD_S:
                self.watch.held(callback, now - at)
            at = now
            timers = self._timers
            if at - began > TURN_S:
                break
        return at

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        """Let go of what it holds. Threads end with the work that they are at."""
        for _ in range(self._threads):
            self._work.put(None)
        if self._signals is not None:
            signal.set_wakeup_fd(-1)
            for sock in self._signals:
                sock.close()
        self._epoll.close()

    def _call(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        try:
            callback(*args)
        except Exception:
            log.exception("a callback failed")


def _nothing() -> None:
    """What a cancelled timer would call."""


def _wake_only(number: int, frame: FrameType | None) -> None:
    """The loop hears of the signal by its wake-up socket; this keeps Python's own handler from acting."""
