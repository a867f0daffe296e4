"""Time, as the broker sees it."""

from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that dates records, one that measures and never goes back."""

    def now_ms(self) -> int:
        """Wall clock: milliseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...
