"""Now, as decisions about classic groups are told it."""

from typing import NamedTuple


class Moment(NamedTuple):
    """On both clocks: deadlines are measured, records are dated."""

    steady_ms: float
    wall_ms: int
