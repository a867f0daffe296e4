"""What goes wrong with data folders and descriptors: away, read-only, slow; too many open files."""

from tidelog.sim.world.faults import Faults

LOOK_S = 0.02


class FolderFaults(Faults):
    """Faults of `faults.py`, and these."""

    def _away(self) -> None:
        """The broker is started while one of its folders isn't mounted: it says so, and starts when that is back."""
        world, random = self._world, self._random
        if random.chance(0.5):
            world.lose_power()
        else:
            world.kill()
        world.away = random.choose(world.folders)
        world.note(f"{world.away} is away")
        world.disk.unmount(world.away, leaves_folder=random.chance(0.5))
        world.timeline.plan(random.between(0.001, 0.1), self._start_without)

    def _readonly(self) -> None:
        """A folder can no longer be written while the broker runs, nor when it is started again."""
        world, random = self._world, self._random
        folder = world.disk.read_only = random.choose(world.folders)
        world.note(f"{folder} is read-only")

        def start() -> None:
            world.kill()
            world.away = folder
            self._start_without()

        world.timeline.plan(random.between(0.05, 0.5), start)

    def _start_without(self) -> None:
        self._world.start()
        self._await_refusal()

    def _await_refusal(self) -> None:
        world = self._world
        assert world.process is not None
        if not world.process.ended:
            world.timeline.plan(LOOK_S, self._await_refusal)
            return
        folder, world.away = world.away, None
        assert folder is not None
        if world.disk.read_only is not None:
            world.disk.read_only = None
        else:
            world.disk.mount(folder)
        world.note(f"{folder} is back")
        self._revive()

    def _slow(self) -> None:
        """Syncs in one folder take long for a while; other folders have nothing to do with it."""
        disk, random = self._world.disk, self._random
        disk.slow, disk.slow_s = random.choose(self._world.folders), random.between(0.05, 0.5)

        def fast_again() -> None:
            disk.slow = None
            self._plan_next()

        self._world.timeline.plan(random.between(0.2, 1.0), fast_again)

    def _descriptors(self) -> None:
        """The process may open no more files, or hardly any, for a while; then the broker goes on by itself.

        Often it was just started, and has everything to open.
        """
        disk, random = self._world.disk, self._random
        disk.no_descriptors = random.choose((0.1, 0.5, 1.0))

        def may_open() -> None:
            disk.no_descriptors = 0.0
            process = self._world.process
            if process is None or process.ended:
                self._revive()
            else:
                self._wait_until_it_serves()

        if random.chance(0.5):
            self._world.kill()
            disk.no_descriptors = 0.0
            self._world.start()

            def once_it_serves() -> None:
                process = self._world.process
                assert process is not None
                if not process.ready and not process.ended:
                    self._world.timeline.plan(LOOK_S, once_it_serves)
                    return
                disk.no_descriptors = random.choose((0.1, 0.5, 1.0))
                self._world.timeline.plan(random.between(0.05, 2.0), may_open)

            once_it_serves()
        else:
            self._world.timeline.plan(random.between(0.05, 0.8), may_open)
