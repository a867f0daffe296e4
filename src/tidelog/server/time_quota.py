"""A connection's share of the loop: what requests other than Produce and Fetch may take of it.

Produce and Fetch cost by their bytes; all others are timed. A connection that spent more than its share has its next
ones handled in turn with all else that takes long (`env/slices.py`), for as long as a slice each: those of light
connections first, then what newcomers ask for first, who are not to wait behind a flood of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.env.bounds import SLICE_S
from tidelog.env.slices import HEAVY, LIGHT, NEW, Weight
from tidelog.server.bounds import LIGHT_S, UNKNOWN_S

if TYPE_CHECKING:
    from tidelog.server.host import Host

SHARE = 10  # a request may come if the loop had ten times what the ones before it took


class TimeQuota:
    __slots__ = ("_host", "_in_debt_until", "_is_new", "_lately_s", "_slice_ends")

    def __init__(self, host: Host, now: float) -> None:
        self._host = host
        self._in_debt_until = now
        self._lately_s = UNKNOWN_S
        self._is_new = True  # nothing that it asked for was handled yet
        self._slice_ends: float | None = None  # what takes long is being handled, until then

    @property
    def weight(self) -> Weight:
        if self._lately_s < LIGHT_S:
            return LIGHT
        return NEW if self._is_new else HEAVY

    def may_handle(self) -> bool:
        """Whether a request other than Produce and Fetch comes now, or in turn with what takes long."""
        host = self._host
        now = host.now()
        if self._slice_ends is not None:
            return now < self._slice_ends
        return (now >= self._in_debt_until or host.loop.alone) and host.may_handle()

    def spent(self, seconds: float) -> None:
        """Such a request took so long."""
        self._lately_s = (self._lately_s + seconds) / 2
        self._is_new = False
        self._in_debt_until = max(self._in_debt_until, self._host.now()) + SHARE * seconds
        if self._slice_ends is None:
            self._host.spent(seconds)

    def begin_slice(self) -> None:
        """What takes long is handled from now on, until the slice is over or `end_slice` is called."""
        self._slice_ends = self._host.now() + SLICE_S

    def end_slice(self) -> None:
        self._slice_ends = None
