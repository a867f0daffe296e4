"""The broker as a process of the simulated world: started, stopped, killed; what it had planned goes with it."""

from collections.abc import Callable
from typing import Protocol

from tidelog.broker import Broker
from tidelog.config import BrokerConfig
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.raft.folder import FolderError
from tidelog.sim.checkers import Violation
from tidelog.sim.disk import SimDisk
from tidelog.sim.loop import SimLoop, Timeline
from tidelog.sim.network import SimNetwork
from tidelog.sim.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError


class Host(Protocol):
    """The part of the world that a process runs on."""

    timeline: Timeline
    disk: SimDisk
    network: SimNetwork

    def note(self, text: str) -> None: ...


class BrokerProcess:
    """One life of the broker, from its start to its end. `ready` when it serves, `ended` when it is gone."""

    def __init__(self, host: Host, life: int, random: SimRandom, config: BrokerConfig) -> None:
        self._host = host
        self.name = f"broker-{life}"
        self.loop = SimLoop(host.timeline, random.fork("loop"))
        self.ready = False
        self.ended = False
        environment = Environment(
            host.timeline, self.loop, host.disk, host.network.view(self.name), random.fork("broker")
        )
        self._broker = Broker(environment, config)
        self.loop.call_soon(self._start)

    def _start(self) -> None:
        try:
            started = self._broker.start()
        except OSError as error:
            self._failed(error)
            return
        except FolderError as error:
            raise Violation(f"{self.name} doesn't start: {error}") from error
        started.on_done(self._started)

    def _started(self, started: Promise[None]) -> None:
        if started.error is not None:
            self._failed(started.error)
            return
        self.ready = True
        self._host.note(f"{self.name} serves")

    def _failed(self, error: BaseException) -> None:
        """A start that the disk's faults made impossible; anything else is a bug and passes through."""
        unwritten = isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
        if not isinstance(error, OSError) and not unwritten:
            raise error
        self._host.note(f"{self.name} doesn't start: {error}")
        self.kill()

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
