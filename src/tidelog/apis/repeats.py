"""What a request names again and again: answered each time, as Kafka does, but not without end.

A name takes some bytes, and what it is answered with may take megabytes: an answer would grow out of bounds.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

T = TypeVar("T")

REPEATS_MAX = 10
"""How many of what is asked for may be there already. Beyond it, each is answered once."""


def bounded(asked: list[T], key: Callable[[T], Hashable]) -> list[T]:
    """All, or where too many are repeated, each when it is first named."""
    first: dict[Hashable, T] = {}
    for one in asked:
        first.setdefault(key(one), one)
    return asked if len(asked) - len(first) <= REPEATS_MAX else list(first.values())
