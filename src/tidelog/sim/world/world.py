"""A whole world from one seed: time, disk, network, the broker's lives, and a trace of what happened."""

from collections import Counter
from hashlib import sha256

from tidelog.config import BrokerConfig
from tidelog.sim.scenarios.checkers import History, Violation
from tidelog.sim.world.loop import Timeline
from tidelog.sim.world.mounts import MountedDisk
from tidelog.sim.world.network import SimNetwork
from tidelog.sim.world.process import BrokerProcess
from tidelog.sim.world.random import SimRandom

DATA = "/data"
START_S_MAX = 60.0
EVENTS_TOLD = 20
"""Of a run that failed, the last ones."""
JOURNAL_BYTES = (0, 1 << 14, 1 << 16, 1 << 18)
"""Small ones are full, and used anew, again and again."""


class World:
    """What clients, processes and faults have in common."""

    def __init__(self, seed: int, settings: dict[str, str], history: History) -> None:
        self.seed = seed
        self.random = SimRandom(seed)
        self.timeline = Timeline()
        self.disk = MountedDisk(self.random.fork("disk"))
        self.disk.now_ms = self.timeline.now_ms
        self.folders = settings["log.dirs"].split(",")
        for folder in self.folders:
            self.disk.make_folders(folder)
        self.away: str | None = None
        """A data folder without which the broker doesn't start."""
        self.disk.sync_folder("/")
        self.network = SimNetwork(self.timeline, self.random.fork("network"))
        self.history = history
        self.disk.cache_lost = history.cache_was_lost
        self.faults: Counter[str] = Counter()
        """How often each kind of fault happened, not how often it was planned."""
        self.disk.struck = self.struck
        self.trace: list[str] = []
        journal = self.random.fork("journal").choose(JOURNAL_BYTES)
        self._settings = {"tidelog.journal.bytes": str(journal), **settings}
        self._lives = 0
        self.process: BrokerProcess | None = None

    def note(self, text: str) -> None:
        self.trace.append(f"{self.timeline.now:.6f} {text}")

    def last_events(self) -> list[str]:
        return self.trace[-EVENTS_TOLD:]

    def struck(self, kind: str) -> None:
        """A fault happened."""
        self.faults[kind] += 1

    def fingerprint(self) -> str:
        """The same for the same run."""
        return sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    def start(self) -> None:
        """Begin a life of the broker; it serves some time later, or not at all where the disk doesn't let it."""
        assert self.process is None or self.process.ended, "the broker lives already"
        self._lives += 1
        self.note(f"life {self._lives} begins")
        config = BrokerConfig.parse(self._settings)
        self.process = BrokerProcess(self, self._lives, self.random.fork(f"life {self._lives}"), config)

    def start_and_wait(self) -> None:
        """Start, and again where that fails, until the broker serves."""
        deadline = self.timeline.now + START_S_MAX
        while self.timeline.now < deadline:
            if self.process is None or self.process.ended:
                self.start()
            self.timeline.run_until(self._started_or_ended, deadline)
            if self.process is not None and self.process.ready:
                return
            self.timeline.run_until(lambda: False, self.timeline.now + 0.1)
        raise Violation(f"the broker doesn't start within {START_S_MAX} s")

    def _started_or_ended(self) -> bool:
        return self.process is None or self.process.ready or self.process.ended

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None and not self.process.ended:
            self.process.kill()
            self.struck("kill")
        self.note("killed")

    def lose_power(self) -> None:
        if self.process is not None and not self.process.ended:
            self.process.kill()
        self.disk.crash()
        self.struck("power loss")
        self.history.cache_was_lost()
        self.note("the power is gone")

    def stop_and_wait(self) -> None:
        """SIGTERM, and wait until the process is gone."""
        process = self.process
        assert process is not None
        done: list[bool] = []
        process.stop(lambda: done.append(True))
        if not self.timeline.run_until(lambda: bool(done), self.timeline.now + START_S_MAX):
            raise Violation(f"the broker doesn't stop within {START_S_MAX} s")
        self.note("stopped")
