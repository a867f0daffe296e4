"""A machine's own clock: it began at another time than the world's, and runs faster or slower."""

from tidelog.sim.world.loop import EPOCH_MS, Timeline


class MachineClock:
    """`env.Clock` of one machine. `offset_s` is what it was ahead of the world's when that began; `rate` how many of
    its seconds go by in one of the world's.

    Both clocks go at the same rate: nobody sets the wall clock while the world lasts.
    """

    __slots__ = ("_offset_s", "_timeline", "rate")

    def __init__(self, timeline: Timeline, offset_s: float = 0.0, rate: float = 1.0) -> None:
        assert rate > 0.0, rate
        self._timeline = timeline
        self._offset_s = offset_s
        self.rate = rate

    def now_ms(self) -> int:
        return EPOCH_MS + int((self._offset_s + self._timeline.now * self.rate) * 1000)

    def monotonic(self) -> float:
        return self._timeline.now * self.rate
