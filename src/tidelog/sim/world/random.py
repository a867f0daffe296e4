"""Seeded randomness: the one source of every choice in a simulated run.

`fork(name)` gives an independent stream, so that a new choice in one part doesn't change the choices of the others.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class SimRandom:
    """`env.Random`, and the dice of the simulator."""

    __slots__ = ("_random", "seed")

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self._random = random.Random(f"tidelog:{seed}")  # text seeds go through SHA-512: the same in every process

    def fork(self, name: str) -> "SimRandom":
        return SimRandom(f"{self.seed}/{name}")

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def random_int(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def uuid(self) -> bytes:
        """A version-4 UUID whose text doesn't start with '-'."""
        while True:
            raw = bytearray(self._random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if raw[0] >> 2 != 62:  # base64's '-'
                return bytes(raw)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random.random()

    def choose(self, options: Sequence[T]) -> T:
        return options[self._random.randrange(len(options))]

    def weighted(self, options: Sequence[tuple[T, float]]) -> T:
        """One of the options, each as likely as its weight says."""
        point = self._random.random() * sum(weight for _, weight in options)
        for option, weight in options:
            point -= weight
            if point < 0:
                return option
        return options[-1][0]
