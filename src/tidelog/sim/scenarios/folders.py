"""A run over two data folders: one is away, read-only or slow for a while, and the broker short of descriptors.

A topic is deleted and made again over them, as in `recreated.py`; another one stays. Settings change all the time.
"""

from collections.abc import Mapping

from tidelog.sim.clients.live_settings import SettingsTurner
from tidelog.sim.clients.reader import WholeReader
from tidelog.sim.clients.workloads import IdempotentProducer
from tidelog.sim.scenarios.checkers import check_numbered
from tidelog.sim.scenarios.incarnations import NAME
from tidelog.sim.scenarios.recreated import AgainRun
from tidelog.sim.world.faults import FAULTS
from tidelog.sim.world.world import DATA

MORE = "/more"
STEADY = "tide"
STEADY_PARTITIONS = 3
FOLDERS_FAULTS = (*FAULTS, ("away", 4.0), ("readonly", 3.0), ("slow", 2.0), ("descriptors", 3.0))


class FoldersRun(AgainRun):
    FAULTS_MOST = (3, 8)
    MORE_SETTINGS: Mapping[str, str] = {"log.dirs": f"{DATA},{MORE}"}

    def __init__(self, seed: int, faults: tuple[tuple[str, float], ...] = FOLDERS_FAULTS) -> None:
        super().__init__(seed, faults)
        self._steady: list[IdempotentProducer] = []
        self._turner: SettingsTurner

    def begin(self) -> None:
        self.make_topics({STEADY: STEADY_PARTITIONS})
        super().begin()
        for partition in range(STEADY_PARTITIONS):
            name = f"sure{partition}"
            random = self.random.fork(name)
            total = random.random_int(50, 300)
            self._steady.append(IdempotentProducer(self.world, name, random, STEADY, partition, total))
        self._turner = SettingsTurner(self.world, "turns", self.random.fork("turns"), (STEADY, NAME))
        self.clients += (*self._steady, self._turner)

    def finish(self) -> None:
        self._turner.stopped = True
        super().finish()
        self.wait(lambda: all(producer.done for producer in self._steady), "idempotent producers to finish")

    def account(self) -> None:
        super().account()
        for producer in self._steady:
            where = f"{STEADY}-{producer.partition}"
            random = self.random.fork(f"read {self.world.timeline.events}")
            reader = WholeReader(self.world, f"whole {where}", random, STEADY, producer.partition)
            self.wait(lambda reader=reader: reader.done, f"{where} to be read")
            reader.loop.kill()
            self.world.history.check_whole(STEADY, producer.partition, reader.start, reader.values)
            check_numbered(where, reader.values, producer.name, once=True)
