"""What goes wrong, and when: one fault after the other, each with its recovery, as the seed decides."""

from collections.abc import Callable

from tidelog.log.names import SWAP
from tidelog.sim.random import SimRandom
from tidelog.sim.world import World

SWAP_S_MAX = 1.5

FAULTS: tuple[tuple[str, float], ...] = (
    ("power", 4),
    ("kill", 3),
    ("stop", 2),
    ("drop", 4),
    ("full", 1.5),
    ("sync", 2),
)


class Faults:
    """Lets faults happen, `count` of them, then calls it a day (`over`)."""

    def __init__(
        self, world: World, random: SimRandom, count: int, kinds: tuple[tuple[str, float], ...] = FAULTS
    ) -> None:
        self._world = world
        self._random = random
        self._left = count
        self._kinds = kinds
        self._plan_next()

    @property
    def over(self) -> bool:
        process = self._world.process
        return self._left < 0 and process is not None and process.ready

    def _plan_next(self) -> None:
        self._left -= 1
        if self._left >= 0:
            self._world.timeline.plan(self._random.between(0.05, 0.8), self._strike)

    def _strike(self) -> None:
        kind = self._random.weighted(self._kinds)
        self._world.note(f"fault: {kind}")
        strike: Callable[[], None] = getattr(self, f"_{kind}")
        strike()

    def _power(self) -> None:
        self._world.lose_power()
        self._revive()

    def _kill(self) -> None:
        self._world.kill()
        self._revive()

    def _stop(self) -> None:
        process = self._world.process
        if process is None or not process.ready:
            self._kill()
            return
        stopped: list[bool] = []

        def gone() -> None:
            stopped.append(True)
            self._world.note("stopped")
            self._revive()

        def tired_of_waiting() -> None:
            if not stopped:
                self._kill()

        process.stop(gone)
        if self._random.chance(0.2):
            self._world.timeline.plan(self._random.between(0.0, 0.05), tired_of_waiting)

    def _drop(self) -> None:
        process = self._world.process
        assert process is not None
        for sock in self._world.network.connections(process.name):
            if self._random.chance(0.6):
                self._world.network.drop(sock)
        self._plan_next()

    def _full(self) -> None:
        disk = self._world.disk
        disk.capacity = disk.used_bytes() + self._random.random_int(0, 20_000)

        def room_again() -> None:
            disk.capacity = None
            self._end_badly()

        self._world.timeline.plan(self._random.between(0.1, 0.8), room_again)

    def _sync(self) -> None:
        disk = self._world.disk
        disk.failing_syncs = self._random.random_int(1, 3)
        disk.failed_sync_keeps_cache = self._random.chance(0.5)  # file systems differ in this

        def works_again() -> None:
            disk.failing_syncs = 0
            self._end_badly()

        self._world.timeline.plan(self._random.between(0.1, 0.8), works_again)

    def _swap(self) -> None:
        """The end comes just when compaction puts a segment in place; if it does so in time."""
        disk, timeline = self._world.disk, self._world.timeline

        def renamed(new: str) -> None:
            if new.endswith(SWAP):
                disk.renamed = None
                timeline.plan(
                    self._random.between(0.0, 0.003), self._random.choose((self._power, self._power, self._kill))
                )

        def tired_of_waiting() -> None:
            if disk.renamed is renamed:
                disk.renamed = None
                self._plan_next()

        disk.renamed = renamed
        timeline.plan(SWAP_S_MAX, tired_of_waiting)

    def _end_badly(self) -> None:
        """After a fault of the disk the operator restarts the broker, one way or the other."""
        self._random.choose((self._power, self._kill, self._stop))()

    def _revive(self) -> None:
        self._world.timeline.plan(self._random.between(0.001, 0.3), self._start)

    def _start(self) -> None:
        self._world.start()
        self._wait_until_it_serves()

    def _wait_until_it_serves(self) -> None:
        process = self._world.process
        assert process is not None
        if process.ended:
            self._revive()
        elif process.ready or self._random.chance(0.05):  # now and then the next fault comes during the start
            self._plan_next()
        else:
            self._world.timeline.plan(0.02, self._wait_until_it_serves)
