"""What raft needs of a log: the seam between the quorum's driver and `log/`."""

from collections.abc import Callable, Iterator
from typing import Protocol

from tidelog.env.network import Buffer
from tidelog.raft.events import LogEnd
from tidelog.raft.snapshot import SnapshotId
from tidelog.wire.batch import BatchHeader


class MetadataLog(Protocol):
    """A log of batches that carry their offsets and epochs already. Ends as in `log.Log`."""

    @property
    def log_start(self) -> int: ...

    @property
    def durable_end(self) -> int: ...

    @property
    def end(self) -> LogEnd:
        """The offset behind the last batch, and that batch's epoch; the checkpoint's where no batch is behind it."""
        ...

    def open(self, on_durable: Callable[[int], None], on_offline: Callable[[str], None]) -> None:
        """Recover what is on disk. From now on `on_durable(end)` is called as the durable end advances."""
        ...

    def end_of_epoch(self, epoch: int) -> LogEnd:
        """As `fetch.EpochLog` has it."""
        ...

    def append(self, batch: bytearray) -> None:
        """Write one batch, or several, at the end, and ask for them to be made durable soon."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Drop what is at `offset` and above."""
        ...

    def batches(self, start: int, end: int) -> Iterator[tuple[BatchHeader, Buffer]]:
        """The batches from the one that holds `start` up to offset `end`, each with the buffer that it lies in."""
        ...

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Batches from `offset` on, the first one whole, the last one perhaps cut; empty at the log's end."""
        ...

    def delete_before(self, snapshot: SnapshotId) -> None:
        """Everything below is in a checkpoint: segments that lie wholly below it may go."""
        ...

    def begin_behind(self, snapshot: SnapshotId) -> None:
        """This is the newest checkpoint: where the log doesn't hold all that it does, drop it and go on behind it."""
        ...

    def size_bytes(self) -> int: ...
