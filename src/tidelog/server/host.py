"""What a connection asks of the server that accepted it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidelog.server.answers import Answer, Late

if TYPE_CHECKING:
    from tidelog.env import Loop
    from tidelog.server.buffers import Buffers
    from tidelog.server.connection import Connection


class Host(Protocol):
    """What the connection asks of the server."""

    loop: Loop
    now: Callable[[], float]
    buffers: Buffers
    frame_bytes_max: int
    requests_max: int
    dispatch: Callable[[Connection, memoryview, int, int], Answer | Late]
    dispatch_alike: Callable[[memoryview, int, int, int], tuple[list[Answer | Late], int] | None]
    """The answers to so many Produce requests at most, for one partition, at the beginning of [start, end), and where
    they end. None: nothing was done, and `dispatch` takes each."""
    begin_ahead: Callable[[memoryview, int, int], None]
    """Frames in [start, end) wait for the one before them: what takes long before they can be handled may begin."""

    def may_handle(self) -> bool:
        """Whether there is time for a request other than Produce and Fetch in this turn of the loop."""
        ...

    def spent(self, seconds: float) -> None:
        """So much of this turn's time was spent on such a request."""
        ...

    def wait_for_buffers(self, connection: Connection) -> None: ...

    def broken(self, connection: Connection) -> None:
        """The other side has ended it; `closed` follows."""
        ...

    def closed(self, connection: Connection, reason: str | None) -> None: ...
