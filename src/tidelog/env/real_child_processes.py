"""Work done by child processes: Python once more, with one module of ours, at the lowest priority.

A job's task is its standard input, what it tells its standard output. It ends with this process, however that ends.
Questions are asked of a child that stays (real_worker.py).
"""

import os
import signal
import sys
from collections.abc import Callable
from socket import socket
from typing import cast

from tidelog.env.loop import Loop
from tidelog.env.network import Socket
from tidelog.env.promise import Promise
from tidelog.env.real_worker import Questions

LINE_BYTES_MAX = 1 << 20
WORKER = "tidelog.env.worker"
_READ_BYTES = 1 << 16
_SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class RealChildProcesses:
    """`ChildProcesses` by a child process for each job, and one for all questions to a module."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.questions: dict[str, Questions] = {}

    def start(
        self, module: str, task: bytes, on_report: Callable[[bytes], None], ended: Callable[[str | None], None]
    ) -> "Child":
        given = os.memfd_create("tidelog-task")
        reads, writes = os.pipe2(os.O_CLOEXEC)
        try:
            _write_all(given, task)
            os.lseek(given, 0, os.SEEK_SET)
            pid = _spawn([module], [(os.POSIX_SPAWN_DUP2, given, 0), (os.POSIX_SPAWN_DUP2, writes, 1)])
        except BaseException:
            os.close(reads)
            raise
        finally:
            os.close(given)
            os.close(writes)
        os.set_blocking(reads, False)
        return Child(self._loop, pid, reads, on_report, ended)

    def ask(self, module: str, question: bytearray) -> Promise[bytearray]:
        asked = self.questions.get(module)
        if asked is None:

            def spawn(sock: socket) -> int:
                return _spawn([WORKER, module], [(os.POSIX_SPAWN_DUP2, sock.fileno(), 0)])

            asked = self.questions[module] = Questions(self._loop, spawn)
        return asked.ask(question)

    def close(self) -> None:
        for asked in self.questions.values():
            asked.close()
        self.questions = {}


def _spawn(modules: list[str], file_actions: list[tuple[int, int, int]]) -> int:
    """Start Python with the first of these modules, which is given our process id and the other ones; its own id.

    By the thread of the loop: the child ends with the thread that started it.
    """
    paths = [_SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", modules[0], str(os.getpid()), *modules[1:]],
        {**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        file_actions=file_actions,
        setsigdef=[signal.SIGTERM],
        setsigmask=[],
    )


class Child:
    """One child process. `pid` is for tests that kill it."""

    def __init__(
        self,
        loop: Loop,
        pid: int,
        reads: int,
        on_report: Callable[[bytes], None],
        ended: Callable[[str | None], None],
    ) -> None:
        self.pid = pid
        self._loop = loop
        self._reads = reads
        self._on_report = on_report
        self._ended = ended
        self._buffer = b""
        self._over = False
        loop.add_reader(cast(Socket, self), self._readable)

    def fileno(self) -> int:
        return self._reads

    def _readable(self) -> None:
        try:
            data = os.read(self._reads, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._on_report(line)
        if len(self._buffer) > LINE_BYTES_MAX:
            self.cancel()

    def _close(self) -> None:
        self._over = True  # it closes its output by ending; later its number may be another's
        self._loop.remove_reader(cast(Socket, self))
        os.close(self._reads)
        self._loop.run_blocking(lambda: os.waitpid(self.pid, 0)[1]).on_done(self._waited)

    def _waited(self, done: Promise[int]) -> None:
        if isinstance(done.error, ChildProcessError):  # whoever started us ignores SIGCHLD: nobody knows how it ended
            self._ended(None)
            return
        code = os.waitstatus_to_exitcode(done.result())
        if code < 0:
            self._ended(f"it was ended by {signal.Signals(-code).name}")
        else:
            self._ended(None if code == 0 else f"it ended with exit code {code}")

    def cancel(self) -> None:
        if not self._over:
            os.kill(self.pid, signal.SIGKILL)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
