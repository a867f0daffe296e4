"""The checkpoint files of a data folder: how far each log is flushed, where it starts, how far it is replicated.

Kept in memory for all logs of the folder, the ones that nobody opened included, and written down as a whole: off the
loop while the broker runs, one write of a file at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tidelog.env.promise import Promise
from tidelog.log import checkpoints
from tidelog.log.checkpoints import LOG_START, RECOVERY_POINT, REPLICATION, CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.env import Environment

Key: TypeAlias = "tuple[str, int]"

MEMORY_END = "tidelog-memory-end-checkpoint"
"""Where logs that are kept in memory go on after a restart."""


class OffsetsFile:
    """One checkpoint file: offsets of all logs in a folder."""

    def __init__(self, env: Environment, path: str, report: Callable[[str], None]) -> None:
        self._env = env
        self._path = path
        self._report = report
        self._changed = False
        self._writing = False
        self._waiting: list[Promise[None]] = []
        self.offsets: dict[Key, int] = {}
        self.broken = False

    def load(self) -> None:
        """`broken` where it can't be read: then nothing is trusted."""
        try:
            self.offsets = checkpoints.read_offsets(self._env.disk, self._path)
        except CheckpointError as error:
            self.broken = True
            self._report(f"{error}; going on without it")

    def put(self, key: Key, offset: int) -> None:
        if self.offsets.get(key) != offset:
            self.offsets[key] = offset
            self._changed = True

    def drop(self, key: Key) -> None:
        if self.offsets.pop(key, None) is not None:
            self._changed = True

    def save(self) -> Promise[None]:
        """Write it down off the loop; resolved when what it holds now is durable."""
        promise: Promise[None] = Promise()
        if not self._changed and not self._writing:
            promise.resolve(None)
            return promise
        self._waiting.append(promise)
        if not self._writing:
            self._write()
        return promise

    def save_now(self) -> None:
        """Write it down at once: at start and stop, and where nothing may happen before it is durable."""
        self._changed = False
        checkpoints.write_offsets(self._env.disk, self._path, self.offsets)

    @property
    def idle(self) -> bool:
        return not self._writing

    def _write(self) -> None:
        self._writing = True
        self._changed = False
        waiting, self._waiting = self._waiting, []
        offsets = dict(self.offsets)
        disk, path = self._env.disk, self._path
        done = self._env.loop.run_blocking(lambda: checkpoints.write_offsets(disk, path, offsets))
        done.on_done(lambda promise: self._written(waiting, promise))

    def _written(self, waiting: list[Promise[None]], promise: Promise[None]) -> None:
        self._writing = False
        if promise.error is not None:
            self._changed = True
            self._report(f"writing {self._path} failed: {promise.error}")
        for waiter in waiting:
            if promise.error is not None:
                waiter.fail(promise.error)
            else:
                waiter.resolve(None)
        if self._waiting and not self._writing:
            self._write()


class Points:
    """The checkpoint files of one data folder."""

    def __init__(self, env: Environment, root: str, report: Callable[[str], None]) -> None:
        self.root = root
        self.recovery = OffsetsFile(env, f"{root}/{RECOVERY_POINT}", report)
        self.starts = OffsetsFile(env, f"{root}/{LOG_START}", report)
        self.replication = OffsetsFile(env, f"{root}/{REPLICATION}", report)
        self.memory = OffsetsFile(env, f"{root}/{MEMORY_END}", report)

    @property
    def files(self) -> tuple[OffsetsFile, ...]:
        return self.recovery, self.starts, self.replication, self.memory

    def load(self) -> None:
        for file in self.files:
            file.load()

    def drop(self, key: Key) -> None:
        for file in self.files:
            file.drop(key)

    @property
    def idle(self) -> bool:
        return all(file.idle for file in self.files)
