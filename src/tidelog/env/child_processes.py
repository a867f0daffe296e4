"""Work that would hold up the loop for long: done by a child process, or in steps where there is only one process.

A job is a module with a function `steps(disk, task)`, which yields one line for each thing that it has to tell. A
question is for a module with a function `answer(question)`, from bytes to bytes, which changes nothing. The same
functions run in production, in processes of their own, and in the simulator, beside the loop.

A thread wouldn't do for what takes Python long: it shares the interpreter with the loop, which has to wait up to 5 ms
each time it comes back from a system call.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Protocol

from tidelog.env.disk import Disk
from tidelog.env.loop import Loop
from tidelog.env.promise import Promise


class Job(Protocol):
    """Work that a child process is doing."""

    def cancel(self) -> None:
        """End it as soon as may be; `ended` is called all the same."""
        ...


class ChildProcesses(Protocol):
    def start(
        self, module: str, task: bytes, on_report: Callable[[bytes], None], ended: Callable[[str | None], None]
    ) -> Job:
        """Begin. On the loop, `told` is called with each line, then `ended`, once: with None, or what went wrong."""
        ...

    def ask(self, module: str, question: bytearray) -> Promise[bytearray]:
        """The module's answer, one question after the other. ChildProcessesError where nobody can answer."""
        ...

    def close(self) -> None:
        """Nothing is asked any more: whoever answers may end."""
        ...


class ChildProcessesError(Exception):
    """A question could not be answered, for no fault of its own."""


class BesideTheLoop:
    """`ChildProcesses` without another process: one step after the other, off the loop."""

    def __init__(self, loop: Loop, disk: Disk) -> None:
        self._loop = loop
        self._disk = disk

    def start(
        self, module: str, task: bytes, on_report: Callable[[bytes], None], ended: Callable[[str | None], None]
    ) -> "Stepping":
        steps: Iterator[bytes] = import_module(module).steps(self._disk, task)
        stepping = Stepping(self._loop, steps, on_report, ended)
        stepping.step()
        return stepping

    def ask(self, module: str, question: bytearray) -> Promise[bytearray]:
        answer: Callable[[bytearray], bytearray] = import_module(module).answer
        return self._loop.run_blocking(lambda: answer(question))

    def close(self) -> None:
        """There is nobody but the loop."""


class Stepping:
    """One job of `BesideTheLoop`."""

    def __init__(
        self,
        loop: Loop,
        steps: Iterator[bytes],
        on_report: Callable[[bytes], None],
        ended: Callable[[str | None], None],
    ) -> None:
        self._loop = loop
        self._steps = steps
        self._on_report = on_report
        self._ended = ended
        self._cancelled = False

    def step(self) -> None:
        self._loop.run_blocking(lambda: next(self._steps, None)).on_done(self._stepped)

    def _stepped(self, done: Promise[bytes | None]) -> None:
        if self._cancelled:
            self._ended("it was cancelled")
        elif done.error is not None:
            self._ended(f"{type(done.error).__name__}: {done.error}")
        elif (line := done.result()) is None:
            self._ended(None)
        else:
            self._on_report(line)
            self.step()

    def cancel(self) -> None:
        self._cancelled = True
