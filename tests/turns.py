"""A real broker in a thread whose turns of the loop are watched: how long the longest was, and what was synced in them.

    with WatchedBroker(tmp_path) as broker:
        answer = broker.unheld(lambda: connection.ask(...))  # may be asked again
        with broker.watching() as seen:
            ...  # what can't be done again
        seen.check()

CPU time of the loop's thread counts, not wall time: a busy machine makes a turn last long without making it work long.
It makes it work longer, too: caches are shared, and what a hypervisor takes away counts as CPU time. A turn that is
really long is long each time, so what may be asked again is, and the least counts.
"""

import gc
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from tidelog.broker import Broker
from tidelog.cli import garbage
from tidelog.config import BrokerConfig
from tidelog.env.promise import Promise
from tidelog.env.real import real_environment
from tidelog.env.real_disk import RealDisk
from tidelog.env.real_loop import RealLoop

LONG_TURN_S = 0.05
SETTLE_S = 30.0
TRIES = 3
SHOWN_FRAMES = 8
"""Of a sync on the loop so much is told of who asked for it."""

T = TypeVar("T")


class Seen:
    """What the loop did while it was watched."""

    def __init__(self) -> None:
        self.longest_cpu_s = 0.0
        self.syncs: list[str] = []

    @property
    def is_long(self) -> bool:
        return self.longest_cpu_s >= LONG_TURN_S

    def check(self) -> None:
        """No turn was long, and nothing was synced in one."""
        assert not self.is_long, f"the longest turn took {self.longest_cpu_s * 1000:.1f} ms of CPU"
        assert not self.syncs, f"the loop waited for {self.syncs}"


class WatchedBroker:
    """`settings` have Kafka's names. A second one on the same folder is a restart; `kill` leaves it as kill -9 does."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self._config = BrokerConfig.parse(
            {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
        )
        self.loop = RealLoop()
        self.broker = Broker(real_environment(self.loop), self._config)
        self._thresholds = gc.get_threshold()
        self._stopped = False
        self._thread = threading.Thread(target=self.loop.run_forever, name="watched loop", daemon=True)

    @property
    def port(self) -> int:
        return next(iter(self.broker.addresses.values())).port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "WatchedBroker":
        ready = threading.Event()
        failed: list[BaseException] = []

        def started(promise: Promise[None]) -> None:
            if promise.error is not None:
                failed.append(promise.error)
            ready.set()

        self.loop.call_soon(lambda: self.broker.start().on_done(started))
        self._thread.start()
        assert ready.wait(SETTLE_S), "the broker is not ready"
        if failed:
            raise failed[0]
        # As `tidelog serve` does; the test's own objects aren't the broker's to look at.
        self._thresholds = gc.get_threshold()
        self.call(lambda: garbage.begin(self.loop))
        return self

    def __exit__(self, *_: object) -> None:
        gc.unfreeze()
        gc.set_threshold(*self._thresholds)
        if not self._stopped:
            self.stop()
        self.call(self.loop.stop)
        self._thread.join(SETTLE_S)
        self.loop.close()

    def stop(self) -> None:
        """A clean stop of the broker; its loop goes on."""
        self._stopped = True
        stopped = threading.Event()
        ends: list[Promise[None]] = []

        def ended(promise: Promise[None]) -> None:
            ends.append(promise)
            stopped.set()

        self.call(lambda: self.broker.stop().on_done(ended))
        stopped.wait(SETTLE_S)
        assert ends, "the broker does not stop"
        assert ends[0].error is None, ends[0].error

    def call(self, callback: Any) -> Any:
        """Run `callback` on the loop's thread and give what it returns."""
        done = threading.Event()
        outcome: list[Any] = []

        def ran(promise: Promise[None]) -> None:
            try:
                outcome.append(callback())
            finally:
                done.set()

        # From another thread only `run_blocking`'s way back is safe: it rings the loop's bell.
        self.loop.run_blocking(lambda: None).on_done(ran)
        assert done.wait(SETTLE_S), "the loop does not answer"
        return outcome[0] if outcome else None

    def unheld(self, act: Callable[[], T]) -> T:
        """What `act` gives, which may be done again: it was done once, at least, without a long turn."""
        for _ in range(TRIES):
            with self.watching() as seen:
                outcome = act()
            if not seen.is_long:
                break
        seen.check()
        return outcome

    @contextmanager
    def watching(self) -> Iterator[Seen]:
        """Watch what the loop does meanwhile. Syncs on its thread are noted, those of other threads aren't."""
        seen = Seen()
        ident = self._thread.ident

        def noted(name: str, real: Any) -> Any:
            def sync(*args: Any) -> Any:
                if threading.get_ident() == ident:
                    by = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in traceback.extract_stack()]
                    seen.syncs.append(f"{name} by {' '.join(by[-SHOWN_FRAMES - 1 : -1])}")
                return real(*args)

            return sync

        self.call(self.loop.watch.reset)
        with (
            patch.object(os, "fsync", noted("fsync", os.fsync)),
            patch.object(os, "fdatasync", noted("fdatasync", os.fdatasync)),
            patch.object(RealDisk, "sync_all", noted("syncfs", RealDisk.sync_all)),
        ):
            yield seen
            seen.longest_cpu_s = self.call(lambda: self.loop.watch.longest_cpu_s)
        print(f"the longest turn took {seen.longest_cpu_s * 1000:.1f} ms of CPU")
