"""What a request names again and again: answered each time, as Kafka does, but not without end.

A name takes some bytes, and what it is answered with may take megabytes: an answer would grow out of bounds.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

from tidelog.env.slices import Steps

T = TypeVar("T")

REPEATS_MAX = 10
"""How many of what is asked for may be there already. Beyond it, each is answered once."""


LOOKED_AT_A_STEP = 256


def bounded(asked: list[T], key: Callable[[T], Hashable]) -> Steps[list[T]]:
    """All, or where too many are repeated, each when it is first named."""
    if len(asked) <= REPEATS_MAX:
        return asked
    first: dict[Hashable, T] = {}
    for start in range(0, len(asked), LOOKED_AT_A_STEP):
        for one in asked[start : start + LOOKED_AT_A_STEP]:
            first.setdefault(key(one), one)
        yield
    return asked if len(asked) - len(first) <= REPEATS_MAX else list(first.values())
