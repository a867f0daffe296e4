"""What goes wrong on the way to a broker; what a broker answers is a KafkaError."""

from typing import Any


class Unreachable(ConnectionError):
    """No broker answered in time. The message says whom was asked, what for, and what the last trouble was."""


class Unsupported(ValueError):
    """The broker, or this side, can't do what was asked for. The message says what to do instead."""


class Lost(ConnectionError):
    """A connection broke, or an answer didn't come in time: nothing is known of the request that waited."""

    def __init__(self, address: object, why: object) -> None:
        super().__init__(address, why)
        self.address = address
        self.why = why

    def __str__(self) -> str:
        return f"{self.address}: {self.why}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Lost, (str(self.address), str(self.why)))


class Unsent(Lost):
    """As `Lost`, and the request never left this node: nobody acted on it, and it may be sent again as it is."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Unsent, (str(self.address), str(self.why)))
