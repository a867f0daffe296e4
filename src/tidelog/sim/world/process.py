"""The broker as a process of the simulated world: started, stopped, killed; what it had planned goes with it."""

from collections.abc import Callable
from typing import Protocol

from tidelog.broker import Broker
from tidelog.config import BrokerConfig
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.log.looks import NONE_AT_ONCE
from tidelog.raft.folder import FolderError
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.mounts import MountedDisk
from tidelog.sim.world.network import SimNetwork
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError

LOOKS_ASIDE = 0.3
"""How often a broker has no time at all to look into records on the loop, as if all batches were long."""
BEGINS_ASIDE = 0.5
"""How often a broker makes the files of no log on the loop, as if thousands were made."""
COMMITS_IN_PIECES = 0.5
"""In so many lives a commit of several offsets is written one by one, as those of thousands are."""


class Host(Protocol):
    """The part of the world that a process runs on."""

    timeline: Timeline
    disk: MountedDisk
    network: SimNetwork
    away: str | None

    def note(self, text: str) -> None: ...


class BrokerProcess:
    """One life of the broker, from its start to its end. `ready` when it serves, `ended` when it is gone."""

    def __init__(self, host: Host, life: int, random: SimRandom, config: BrokerConfig) -> None:
        self._host = host
        self.name = f"broker-{life}"
        self.loop = SimLoop(host.timeline, random.fork("loop"))
        self.loop.lag = host.disk.lag
        self.ready = False
        self.ended = False
        environment = Environment(
            host.timeline, self.loop, host.disk, host.network.view(self.name), random.fork("broker")
        )
        self._broker = Broker(environment, config)
        self._looks_aside = random.fork("looks").chance(LOOKS_ASIDE)
        self._begins_aside = random.fork("begins").chance(BEGINS_ASIDE)
        self._commits_in_pieces = random.fork("commits").chance(COMMITS_IN_PIECES)
        self.loop.call_soon(self._start)

    @property
    def has_offline(self) -> bool:
        """Whether a log of its can't be served until it is restarted."""
        return self.ready and bool(self._broker.services.store.offline)

    def _start(self) -> None:
        try:
            started = self._broker.start()
        except (OSError, FolderError) as error:
            self._failed(error)
            return
        if self._looks_aside:
            self._broker.services.store.looks.budget = NONE_AT_ONCE
        if self._begins_aside:
            self._broker.services.store.beginnings.at_once_max = 0
        if self._commits_in_pieces:
            self._broker.services.groups.committed_at_once = 1
        started.on_done(self._started)

    def _started(self, started: Promise[None]) -> None:
        if started.error is not None:
            self._failed(started.error)
            return
        if self._host.away is not None:
            raise Violation(f"{self.name} serves without {self._host.away}")
        self._broker.ended.on_done(lambda promise: promise.result())  # nothing that a disk does ends it: a bug
        self.ready = True
        self._host.note(f"{self.name} serves")

    def _failed(self, error: BaseException) -> None:
        """A start that the disk's faults made impossible; anything else is a bug and passes through."""
        if isinstance(error, FolderError) and not self._is_expected(error):
            raise Violation(f"{self.name} doesn't start: {error}") from error
        unwritten = isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
        if not isinstance(error, OSError | FolderError) and not unwritten:
            raise error
        self._host.note(f"{self.name} doesn't start: {error}")
        self.kill()

    def _is_expected(self, error: FolderError) -> bool:
        """A folder is away, or couldn't be taken for want of a descriptor."""
        return self._host.away is not None or isinstance(error.__cause__, OSError)

    def stop(self, stopped: Callable[[], None]) -> None:
        """SIGTERM. `stopped` is called when it is gone."""

        def gone(promise: Promise[None]) -> None:
            if promise.error is not None:
                self._host.note(f"{self.name} doesn't stop cleanly: {promise.error}")
            self.kill()
            stopped()

        self.ready = False
        self._broker.stop().on_done(gone)

    def kill(self) -> None:
        """kill -9: whatever it had planned doesn't happen; the page cache stays."""
        self.ready = False
        self.ended = True
        self.loop.kill()
        self._host.network.kill(self.name)
        self._host.disk.release_locks()
