"""Randomness, so that a simulated run can be repeated from its seed."""

from typing import Protocol


class Random(Protocol):
    def random_bytes(self, count: int) -> bytes: ...

    def random_int(self, low: int, high: int) -> int:
        """An integer in [low, high], both included."""
        ...

    def uuid(self) -> bytes:
        """A version-4 UUID as 16 bytes; never one of those that Kafka reserves, never starting with '-' in its text."""
        ...
