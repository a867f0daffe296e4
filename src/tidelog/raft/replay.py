"""What the quorum tells the machine on top of it: who leads, what is committed, and the records of it.

A node that leads has the records already, and is told an offset; one that follows is given them as they were written.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from tidelog.raft.checkpointer import SnapshotSource
from tidelog.raft.control import data_values
from tidelog.raft.metadata_log import MetadataLog
from tidelog.raft.snapshot import SnapshotContents, SnapshotId
from tidelog.wire.batch import check
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError


class ReplayBatch(NamedTuple):
    """Committed records that weren't decided here, or not since the start."""

    last_offset: int
    epoch: int
    timestamp_ms: int
    values: list[bytes]

    @property
    def first_offset(self) -> int:
        """The offset of the first value; a batch of raft's own has none."""
        return self.last_offset + 1 - len(self.values)


class RaftListener(Protocol):
    """The machine on top."""

    def load_snapshot(self, contents: SnapshotContents, snapshot: SnapshotId) -> None: ...

    def replay(self, batches: Iterable[ReplayBatch]) -> None: ...

    def lead(self, epoch: int) -> None:
        """This node leads, and everything in its log is replayed."""
        ...

    def stop_leading(self, epoch: int) -> None: ...

    def committed(self, end: int) -> None:
        """Everything below `end` is committed; called while leading, replayed batches apart."""
        ...

    def snapshot_source(self) -> SnapshotSource | None:
        """The committed state, or None where there is none worth a checkpoint."""
        ...


def replay_batches(log: MetadataLog, start: int, end: int) -> Iterator[ReplayBatch]:
    """What the log has from `start` to `end`, each batch checked as it is come to; KafkaError names the one that isn't
    sound."""
    for header, buffer in log.batches(start, end):
        try:
            check(buffer, header, header.end)
            values = [] if header.control else data_values(buffer, header)
        except (KafkaError, MalformedError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.CORRUPT_MESSAGE
            raise KafkaError(code, f"the batch at offset {header.base_offset}: {error}") from None
        yield ReplayBatch(header.last_offset, header.leader_epoch, header.max_timestamp, values)
