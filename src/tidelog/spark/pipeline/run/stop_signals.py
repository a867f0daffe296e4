"""Ctrl-C, and what service managers send, as a wish that a run looks at between two calls of Spark's.

An exception raised by a signal would cut a call to Java in the middle: the next call reads the answer of that one, and
a page of tracebacks hides what happened. So the first signal only sets a flag, calls that may take long are cancelled
by a thread of their own, and the second signal leaves at once. Before Spark is there nothing is lost by leaving: then
the first one does.
"""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_S = 0.2
AGAIN_S = 1.0


class Stop:
    """Whether somebody wants the run to end; `number` is the signal that said so.

    `gently` once there is something to bring to its end.
    """

    def __init__(self) -> None:
        self.number = 0
        self.gently = False
        self._wished = threading.Event()

    def wish(self, number: int = signal.SIGTERM) -> None:
        self.number = number
        self._wished.set()

    def __bool__(self) -> bool:
        return self._wished.is_set()

    def wait(self, seconds: float) -> bool:
        """Until it is wished, or for so long; whether it is."""
        return self._wished.wait(seconds)

    @contextmanager
    def on_signals(self, tell: Callable[[str], None]) -> Generator[None]:
        """Signals are wishes meanwhile; the second one, and one that comes before `gently`, is a KeyboardInterrupt.

        Those that are ignored stay so.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def first(number: int, frame: object) -> None:
            for each in caught:
                signal.signal(each, second)
            self.wish(number)
            if not self.gently:
                raise KeyboardInterrupt

        def second(number: int, frame: object) -> None:
            raise KeyboardInterrupt

        before = {each: signal.getsignal(each) for each in SIGNALS}
        caught = [each for each, handler in before.items() if handler is not signal.SIG_IGN]
        for each in caught:
            signal.signal(each, first)
        try:
            with self.then(lambda: tell("stopping; once more to leave at once")):
                yield
        finally:
            for each in caught:
                signal.signal(each, before[each] or signal.SIG_DFL)

    @contextmanager
    def cancelling(self, spark: Any) -> Generator[None]:
        """What Spark does for a call of this thread is cancelled when a stop is wished, and the call fails."""
        own = not type(spark).__module__.startswith("pyspark.sql.connect")
        cancel: Callable[[], Any] = spark.sparkContext.cancelAllJobs if own else spark.interruptAll
        with self.then(cancel, again=True):
            yield

    @contextmanager
    def then(self, act: Callable[[], Any], *, again: bool = False) -> Generator[None]:
        """`act` is called by another thread when a stop is wished meanwhile; every second where it is to be again."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOK_S):
                if self:
                    act()
                    if not again or over.wait(AGAIN_S):
                        return

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
