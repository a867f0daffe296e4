"""Questions answered aside by a child process, which is kept for the next one: to start Python takes as long as most
answers do. Each waits for its answer in a thread, which sleeps meanwhile.
"""

import os
import socket
from collections import deque
from collections.abc import Callable
from functools import partial

from tidelog.env.child_processes import ChildProcessesError
from tidelog.env.loop import Loop, Timer
from tidelog.env.promise import Promise
from tidelog.env.worker import HangUp, exchange

IDLE_S = 60.0
"""A child that was asked nothing for so long ends."""
TRIES = 2
"""Another child is asked where one ended amid an answer; whoever ends two of them gets none."""

Spawn = Callable[[socket.socket], int]


class _Question:
    __slots__ = ("data", "promise", "tries")

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.promise: Promise[bytearray] = Promise()
        self.tries = 0


class Questions:
    """Those for one module, one after the other. `spawn` starts a child on a socket and gives its process id."""

    def __init__(self, loop: Loop, spawn: Spawn) -> None:
        self._loop = loop
        self._spawn = spawn
        self._waiting: deque[_Question] = deque()
        self._asked: _Question | None = None
        self._sock: socket.socket | None = None
        self._closed = False
        self._idle: Timer | None = None
        self.pid = -1
        """Of the child, for tests that kill it."""

    def ask(self, data: bytearray) -> Promise[bytearray]:
        question = _Question(data)
        self._waiting.append(question)
        if self._asked is None:
            self._next()
        return question.promise

    def close(self) -> None:
        self._closed = True
        if self._asked is None:
            self._let_go()
        elif self._sock is not None:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for the answer

    def _next(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        while self._waiting and self._asked is None:  # who is told that nobody answers may have asked again
            question = self._asked = self._waiting.popleft()
            try:
                sock = self._connected()
            except OSError as error:
                self._asked = None
                question.promise.fail(ChildProcessesError(f"nobody answers: {error}"))
                continue
            self._loop.run_blocking(partial(exchange, sock, question.data)).on_done(self._answered)
        if self._asked is None and self._idle is None:
            self._idle = self._loop.call_later(IDLE_S, self._let_go)

    def _connected(self) -> socket.socket:
        if self._closed:
            raise OSError("it is closed")
        if self._sock is None:
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    self.pid = self._spawn(theirs)
                except BaseException:
                    ours.close()
                    raise
            self._sock = ours
        return self._sock

    def _answered(self, done: Promise[bytearray]) -> None:
        question, self._asked = self._asked, None
        assert question is not None
        error = done.error
        if error is None:
            question.promise.resolve(done.result())
        else:
            self._let_go()
            question.tries += 1
            if isinstance(error, (HangUp, OSError)) and question.tries < TRIES and not self._closed:
                self._waiting.appendleft(question)
            else:
                question.promise.fail(ChildProcessesError(f"whoever was to answer ended: {error!r}"))
        if self._asked is None:  # who was told may have asked again
            self._next()

    def _let_go(self) -> None:
        """It ends when it sees that."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()
            pid = self.pid
            self._loop.run_blocking(lambda: os.waitpid(pid, 0)).on_done(lambda _: None)
