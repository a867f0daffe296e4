"""A run of changes to the metadata, large and small, on a disk that fills up in the middle of the large ones.

The broker goes on when there is room again, and is restarted later: every change that was answered is still there.
"""

from tidelog.sim.clients.admins import SettingsChanger, TopicKeeper
from tidelog.sim.scenarios.checkers import History
from tidelog.sim.scenarios.scenario_run import SETTINGS, ScenarioRun
from tidelog.sim.world.faults import FAULTS
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.world import World

CHANGES_FAULTS = (*FAULTS, ("tight", 12.0))


class ChangesRun(ScenarioRun[World]):
    FAULTS_MOST = (4, 10)

    def __init__(self, seed: int, faults: tuple[tuple[str, float], ...] = CHANGES_FAULTS) -> None:
        random = SimRandom(seed).fork("changes settings")
        settings = {  # with checkpoints and without: either way the log is replayed at the next start
            "metadata.log.max.snapshot.interval.ms": str(random.choose((300, 3_600_000))),
            "metadata.log.max.record.bytes.between.snapshots": str(random.choose((1_000_000, 20_000_000))),
            "metadata.max.retention.bytes": str(random.choose((1_000_000, 100_000_000))),
        }
        super().__init__(World(seed, {**SETTINGS, **settings}, History()), "changes", faults)
        self._settings: SettingsChanger
        self._topics: TopicKeeper

    def begin(self) -> None:
        self._settings = SettingsChanger(self.world, "settings", self.random.fork("settings"))
        self._topics = TopicKeeper(self.world, "topics", self.random.fork("topics"))

    def finish(self) -> None:
        """They stay, and only look from now on."""
        self._settings.stopped = self._topics.stopped = True
        self.rest(1.0)

    def account(self) -> None:
        settings, topics = self._settings.looks + 2, self._topics.looks + 2  # what is under way was seen before
        self.wait(lambda: self._settings.looks >= settings and self._topics.looks >= topics, "the admins to look")

    def tally(self) -> tuple[int, int]:
        return self._settings.changes + self._topics.changes, self._settings.looks + self._topics.looks
