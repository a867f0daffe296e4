"""Virtual time: one timeline of events for the whole world, and a loop for each process that lives on it.

Time jumps to the next event, so nothing waits. Events of the same moment run in the order in which they were planned;
all else is decided by the seed.
"""

from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, TypeVar

from tidelog.env.network import Socket
from tidelog.env.promise import Promise
from tidelog.env.slices import HEAVY, LIGHT, Steps, Weight, steps_of
from tidelog.env.turns import TurnWatch
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.socket import SimSocket

T = TypeVar("T")

EPOCH_MS = 1_750_000_000_000
"""The wall clock's time when a world begins."""

STEPS_A_SLICE_MAX = 8
SLICE_S = 0.001


class Death(BaseException):
    """The process that runs is gone, in the middle of what it does. No handler of an Exception sees it."""


class SimTimer:
    """A callback to come. `loop` None: it belongs to the world and outlives every process."""

    __slots__ = ("args", "callback", "cancelled", "loop")

    def __init__(self, loop: "SimLoop | None", callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.loop = loop
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Timeline:
    """The clock and all that is planned. It is `env.Clock` too."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, SimTimer]] = []
        self._planned = 0

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def plan(
        self, delay_s: float, callback: Callable[..., None], *args: Any, loop: "SimLoop | None" = None
    ) -> SimTimer:
        return self.plan_at(self.now + max(delay_s, 0.0), callback, *args, loop=loop)

    def plan_at(
        self, when: float, callback: Callable[..., None], *args: Any, loop: "SimLoop | None" = None
    ) -> SimTimer:
        """At that very time: what is planned for one moment happens in the order of the plans. A delay is rounded."""
        timer = SimTimer(loop, callback, args)
        self._planned += 1
        heappush(self._heap, (when, self._planned, timer))
        return timer

    def planned(self, loop: "SimLoop") -> int:
        """How many callbacks of this loop are to come."""
        return sum(1 for _, _, timer in self._heap if timer.loop is loop and not timer.cancelled)

    def run_until(self, done: Callable[[], bool], deadline: float, events_max: int = 5_000_000) -> bool:
        """Let time pass until `done` or until `deadline`; whether it is done. A callback's exception passes through.

        A process that keeps itself busy without letting time pass would hang the world: `events_max` bounds it.
        """
        stop = self.events + events_max
        while not done():
            if not self._heap or self._heap[0][0] > deadline:
                self.now = max(self.now, deadline)
                return done()
            self.now, _, timer = heappop(self._heap)
            loop = timer.loop
            if timer.cancelled or (loop is not None and not loop.alive):
                continue
            if loop is not None and loop.held is not None:
                loop.held.append(timer)
                continue
            self.events += 1
            assert self.events < stop, f"{events_max} events until {self.now:.3f} s: something keeps itself busy"
            with suppress(Death):
                timer.callback(*timer.args)
        return True


class SimLoop:
    """`env.Loop` of one process. When it is killed, everything it had planned is gone.

    `rate`: how fast the clock runs that its timers go by; a second of it takes 1 / rate.
    """

    def __init__(self, timeline: Timeline, random: SimRandom, rate: float = 1.0) -> None:
        self.timeline = timeline
        self.rate = rate
        self.alive = True
        self.held: list[SimTimer] | None = None
        """What became due while the process is stopped (SIGSTOP); None: it runs."""
        self.alone = False
        self.turns = 0
        self.blocking = 0
        """How much blocking work is under way."""
        self.watch = TurnWatch()
        self.lag: Callable[[], float] = lambda: 0.0
        """How much longer the blocking work that was just done takes, on a slow disk."""
        self._random = random
        self._readers: dict[SimSocket, Callable[[], None]] = {}
        self._writers: dict[SimSocket, Callable[[], None]] = {}
        self._polled: set[SimSocket] = set()

    def kill(self) -> None:
        self.alive = False
        self._readers.clear()
        self._writers.clear()

    def freeze(self) -> None:
        """SIGSTOP: nothing of it happens any more, in none of its threads. Its machine goes on taking connections and
        bytes, as much as there is room for."""
        if self.held is None:
            self.held = []

    def thaw(self) -> None:
        """SIGCONT: what became due meanwhile happens now, in its order."""
        held, self.held = self.held or [], None
        for timer in held:
            if not timer.cancelled:
                self.timeline.plan(0.0, self._belated, timer, loop=self)

    @staticmethod
    def _belated(timer: SimTimer) -> None:
        if not timer.cancelled:  # by one before it
            timer.callback(*timer.args)

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self.timeline.plan(0.0, callback, *args, loop=self)

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> SimTimer:
        return self.timeline.plan(delay_s / self.rate, callback, *args, loop=self)

    def spread(self, steps: Steps[T]) -> Promise[T]:
        """Each slice has some steps, and whatever else is due comes between two of them."""
        promise: Promise[T] = Promise()
        self.call_soon(self._advance, steps, promise)
        return promise

    def drive(self, steps: Steps[T], weight: Weight = LIGHT) -> Promise[T]:
        promise: Promise[T] = Promise()
        self._advance(steps, promise)
        return promise

    def begin(self, steps: Steps[T]) -> tuple[bool, T | None]:
        """As many steps as a slice has, which chance decides: time would make each run another one."""
        try:
            self._slice(steps)
        except StopIteration as end:
            return True, end.value
        return False, None

    def _advance(self, steps: Steps[T], promise: Promise[T]) -> None:
        try:
            waits = self._slice(steps)
        except StopIteration as end:
            promise.resolve(end.value)
        except Exception as error:
            promise.fail(error)
        else:
            if waits is None:
                self.call_later(SLICE_S, self._advance, steps, promise)
            else:
                waits.on_done(lambda _: self.call_soon(self._advance, steps, promise))

    def _slice(self, steps: Steps[Any]) -> Promise[Any] | None:
        """What it waits for, where it does."""
        for _ in range(self.steps_a_slice()):
            waits = next(steps)
            if waits is not None and not waits.done:
                return waits
        return None

    def steps_a_slice(self) -> int:
        return self._random.random_int(1, STEPS_A_SLICE_MAX)

    def call_in_turn(self, callback: Callable[[], None], weight: Weight = HEAVY) -> None:
        self.spread(steps_of(callback))

    def run_blocking(self, work: Callable[[], T]) -> Promise[T]:
        """The work is done at some moment from now on, and its promise settled at some moment after that."""
        promise: Promise[T] = Promise()

        def begin() -> None:
            try:
                settle: Callable[[Any], None] = promise.resolve
                outcome: Any = work()
            except Exception as error:
                settle, outcome = promise.fail, error
            self.call_later(self._blocking_delay() + self.lag(), end, settle, outcome)

        def end(settle: Callable[[Any], None], outcome: Any) -> None:
            self.blocking -= 1
            settle(outcome)

        self.blocking += 1
        self.call_later(self._blocking_delay(), begin)
        return promise

    def _blocking_delay(self) -> float:
        return self._random.between(0.0, 0.05 if self._random.chance(0.05) else 0.002)

    def add_reader(self, sock: Socket, callback: Callable[[], None]) -> None:
        watched = self._watch(sock)
        self._readers[watched] = callback
        self.poll(watched)

    def remove_reader(self, sock: Socket) -> None:
        self._readers.pop(self._watch(sock), None)

    def add_writer(self, sock: Socket, callback: Callable[[], None]) -> None:
        watched = self._watch(sock)
        self._writers[watched] = callback
        self.poll(watched)

    def remove_writer(self, sock: Socket) -> None:
        self._writers.pop(self._watch(sock), None)

    def _watch(self, sock: Socket) -> SimSocket:
        assert isinstance(sock, SimSocket), f"{sock!r} is no simulated socket"
        sock.changed = self.poll
        return sock

    def poll(self, sock: SimSocket) -> None:
        """Something may have become ready: look at it when its turn comes. Level-triggered, as epoll is here."""
        if sock in self._polled or not self._ready(sock):
            return
        self._polled.add(sock)
        self.call_soon(self._dispatch, sock)

    def _ready(self, sock: SimSocket) -> bool:
        return (sock in self._readers and sock.readable) or (sock in self._writers and sock.writable)

    def _dispatch(self, sock: SimSocket) -> None:
        self._polled.discard(sock)
        self.alone = not self._polled
        reader = self._readers.get(sock)
        if reader is not None and sock.readable:
            reader()
        writer = self._writers.get(sock)
        if writer is not None and sock.writable:
            writer()
        self.poll(sock)
