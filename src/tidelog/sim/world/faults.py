"""What goes wrong, and when: one fault after the other, each with its recovery, as the seed decides."""

from collections.abc import Callable

from tidelog.log.names import DELETED, LOG, SWAP
from tidelog.sim.world.loop import Death
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.world import DATA, World

RENAME_S_MAX = 1.5
TIGHT_BYTES_MAX = 3_000_000
DEATH_S_MAX = 1.0
OPENING_S = 0.2
"""By then what was met by logs that were being opened is known."""
BAD_BYTES = (1, 512, 4096, 100_000)

FAULTS: tuple[tuple[str, float], ...] = (
    ("power", 4),
    ("kill", 3),
    ("stop", 2),
    ("drop", 4),
    ("full", 1.5),
    ("sync", 2),
    ("descriptors", 1.5),
    ("slow", 1),
    ("read", 1.5),
    ("append", 1),
    ("death append", 0.8),
    ("death truncate", 0.8),
    ("death sync", 0.8),
    ("death create", 0.8),
)


class Faults:
    """Lets faults happen, `count` of them, then calls it a day (`over`). A kind is a name, with a topic's perhaps."""

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
        name, *where = kind.split()
        strike: Callable[..., None] = getattr(self, f"_{name}")
        strike(*where)

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
            self._world.struck("stop")
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
                self._world.struck("dropped connection")
        self._plan_next()

    def _full(self) -> None:
        disk = self._world.disk
        disk.capacity = disk.used_bytes() + self._random.random_int(0, 20_000)

        def room_again() -> None:
            disk.capacity = None
            if self._random.chance(0.5):
                self._plan_next()  # the broker goes on by itself
            else:
                self._end_badly()

        self._world.timeline.plan(self._random.between(0.1, 0.8), room_again)

    def _tight(self) -> None:
        """Room for some of what is written, and not for all of it; then there is room again, and the broker goes on."""
        disk = self._world.disk
        disk.capacity = disk.used_bytes() + self._random.random_int(0, TIGHT_BYTES_MAX)

        def room_again() -> None:
            disk.capacity = None
            self._plan_next()

        self._world.timeline.plan(self._random.between(0.05, 0.5), room_again)

    def _sync(self) -> None:
        disk = self._world.disk
        disk.failing_syncs = self._random.random_int(1, 3)
        disk.failed_sync_keeps_cache = self._random.chance(0.5)  # file systems differ in this

        def works_again() -> None:
            disk.failing_syncs = 0
            self._end_badly()

        self._world.timeline.plan(self._random.between(0.1, 0.8), works_again)

    def _read(self) -> None:
        """Some bytes of some files can't be read for a while; then perhaps the broker goes on by itself."""
        disk = self._world.disk
        files = disk.files(DATA)
        disk.failing_sends = self._random.random_int(0, 2)
        for path in files:
            if self._random.chance(0.3 if path.endswith(LOG) else 0.05) and (size := disk.size(path)):
                first = self._random.random_int(0, size - 1)
                disk.bad[path] = range(first, first + self._random.choose(BAD_BYTES))

        def readable_again() -> None:
            disk.bad.clear()
            disk.failing_sends = 0
            self._world.timeline.plan(OPENING_S, go_on)

        def go_on() -> None:
            goes_on = self._random.chance(0.5)
            process = self._world.process
            if goes_on and not (process is not None and process.has_offline):  # what was just opened may be
                self._plan_next()
            else:
                self._end_badly()

        self._world.timeline.plan(self._random.between(0.2, 2.0), readable_again)

    def _append(self) -> None:
        """Writes fail in the middle."""
        disk = self._world.disk
        disk.failing_appends = self._random.random_int(1, 3)
        disk.failing_suffix = self._random.choose((LOG, LOG, ""))

        def works_again() -> None:
            disk.failing_appends = 0
            self._end_badly()

        self._world.timeline.plan(self._random.between(0.1, 0.8), works_again)

    def _death(self, at: str) -> None:
        """The end comes in the midst of an append, or just before or after a truncation, a sync or a creation."""
        disk, timeline = self._world.disk, self._world.timeline
        left = self._random.random_int(0, 40 if at in ("append", "sync") else 4)

        def touched(what: str, path: str) -> None:
            nonlocal left
            if what != at:
                return
            left -= 1
            if left < 0:
                disk.touched = None
                self._world.struck(f"death at {at}")
                self._world.note(f"death at {at} of {path}")
                self._random.choose((self._power, self._kill))()
                raise Death

        def tired_of_waiting() -> None:
            if disk.touched is touched:
                disk.touched = None
                self._plan_next()

        disk.touched = touched
        timeline.plan(DEATH_S_MAX, tired_of_waiting)

    def _swap(self) -> None:
        """The end comes just when compaction puts a segment in place; if it does so in time."""
        self._end_at_rename(SWAP, (self._power, self._power, self._kill))

    def _retention(self, topic: str = "") -> None:
        """The end comes just when retention takes a segment away, of this topic; if it does so in time."""
        self._end_at_rename(DELETED, (self._power, self._kill, self._kill), f"/{topic}")

    def _end_at_rename(self, suffix: str, ends: tuple[Callable[[], None], ...], where: str = "") -> None:
        disk, timeline = self._world.disk, self._world.timeline

        def renamed(new: str) -> None:
            if new.endswith(suffix) and where in new:
                disk.renamed = None
                self._world.struck(f"death at a rename to {suffix}")
                timeline.plan(self._random.between(0.0, 0.003), self._random.choose(ends))

        def tired_of_waiting() -> None:
            if disk.renamed is renamed:
                disk.renamed = None
                self._plan_next()

        disk.renamed = renamed
        timeline.plan(RENAME_S_MAX, tired_of_waiting)

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
