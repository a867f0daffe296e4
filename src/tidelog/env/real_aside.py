"""Work done aside in a child process: Python once more, with one module of ours, at the lowest priority.

The task is its standard input, what it tells its standard output. It ends with this process, however that ends.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import cast

from tidelog.env.loop import Loop
from tidelog.env.network import Socket
from tidelog.env.promise import Promise

LINE_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 16
_SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class ChildProcesses:
    """`Aside` by a child process for each errand."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def start(
        self, module: str, task: bytes, told: Callable[[bytes], None], ended: Callable[[str | None], None]
    ) -> "Child":
        given = os.memfd_create("tidelog-task")
        reads, writes = os.pipe2(os.O_CLOEXEC)
        try:
            _write_all(given, task)
            os.lseek(given, 0, os.SEEK_SET)
            paths = [_SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])]
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-m", module, str(os.getpid())],
                {**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                file_actions=[(os.POSIX_SPAWN_DUP2, given, 0), (os.POSIX_SPAWN_DUP2, writes, 1)],
                setsigdef=[signal.SIGTERM],
                setsigmask=[],
            )
        except BaseException:
            os.close(reads)
            raise
        finally:
            os.close(given)
            os.close(writes)
        os.set_blocking(reads, False)
        return Child(self._loop, pid, reads, told, ended)


class Child:
    """One child process. `pid` is for tests that kill it."""

    def __init__(
        self,
        loop: Loop,
        pid: int,
        reads: int,
        told: Callable[[bytes], None],
        ended: Callable[[str | None], None],
    ) -> None:
        self.pid = pid
        self._loop = loop
        self._reads = reads
        self._told = told
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
            self._told(line)
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
