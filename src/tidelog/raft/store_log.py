"""The metadata log on disk: `log.Log` as the quorum's driver sees it."""

from collections.abc import Callable, Iterator

from tidelog.config.topic import TopicConfig
from tidelog.env.clock import Clock
from tidelog.env.network import Buffer
from tidelog.log.log import Log
from tidelog.log.store import Store
from tidelog.raft.events import LogEnd
from tidelog.raft.folder import METADATA_TOPIC_ID
from tidelog.raft.snapshot import SnapshotId
from tidelog.wire.batch import BatchHeader, iterate
from tidelog.wire.errors import ErrorCode, KafkaError

METADATA_TOPIC = "__cluster_metadata"
READ_BYTES = 4 * 1024 * 1024

METADATA_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",  # checkpoints decide what may go
    "retention.bytes": "-1",
    "segment.bytes": str(1024 * 1024 * 1024),
    "segment.ms": str(7 * 24 * 3600 * 1000),
    "max.message.bytes": str(16 * 1024 * 1024),
    "tidelog.durability": "fsync",
    "file.delete.delay.ms": "60000",
}


class StoreLog:
    """Kafka's files in `__cluster_metadata-0`, made durable by the store's group commit."""

    def __init__(self, store: Store, clock: Clock, config: TopicConfig, root: str | None = None) -> None:
        self._store = store
        self._root = root
        self._clock = clock
        self._config = config
        self._log: Log
        self._snapshot = SnapshotId(0, 0)
        """The newest checkpoint that the log may begin behind. What it holds is never cut: it ends there or later."""
        self._on_durable: Callable[[int], None]
        self._on_offline: Callable[[str], None]

    def open(self, on_durable: Callable[[int], None], on_offline: Callable[[str], None]) -> None:
        self._on_durable = on_durable
        self._on_offline = on_offline
        self._log = self._store.log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, self._config, self._root)
        if self._log.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._log.offline)
        self._log.listener = self

    @property
    def log_start(self) -> int:
        return self._log.log_start

    @property
    def durable_end(self) -> int:
        return self._log.durable_end

    @property
    def end(self) -> LogEnd:
        return LogEnd(self.newest_epoch(), self._log.log_end)

    def newest_epoch(self) -> int:
        """Of what is in the log, or in the checkpoint that it begins behind: that may be all there is."""
        return max(self.epoch_of_records, self._snapshot.epoch)

    @property
    def epoch_of_records(self) -> int:
        """Of the last record in the log, whatever it begins behind."""
        return self._log.epochs.latest

    def end_of_epoch(self, epoch: int) -> LogEnd:
        """As `fetch.EpochLog` has it."""
        end = self.end
        if epoch >= end.epoch:
            return end
        found, offset = self._log.epochs.end_offset_for(epoch, end.offset)
        if offset < 0:
            return end
        return LogEnd(self._snapshot.epoch if offset == self._snapshot.offset else found, offset)

    def append(self, batch: bytearray) -> None:
        log = self._log
        log.append_records(memoryview(batch), 0, len(batch), self._clock.now_ms())
        self._store.commit.request(log)

    def truncate_to(self, offset: int) -> None:
        self._log.truncate_to(offset)

    def batches(self, start: int, end: int) -> Iterator[tuple[BatchHeader, Buffer]]:
        while start < end:
            data = self._log.read_bytes(start, READ_BYTES, end)
            if data is None:
                return
            before = start
            for header in iterate(data):
                start = header.next_offset
                yield header, data
            assert start > before, f"no whole batch at offset {start} of the metadata log"

    def read(self, offset: int, max_bytes: int) -> bytes:
        return self._log.read_bytes(offset, max_bytes, self._log.log_end) or b""

    def delete_before(self, snapshot: SnapshotId) -> None:
        self._snapshot = max(self._snapshot, snapshot)
        self._log.delete_before(snapshot.offset)

    def begin_behind(self, snapshot: SnapshotId) -> None:
        # A log that begins there was made to. Any other holds the checkpoint's last record, or something else in its
        # place: an epoch that never committed can be newer than the checkpoint's.
        known = self.end_of_epoch(snapshot.epoch)
        if self.log_start != snapshot.offset and not (
            known.epoch == snapshot.epoch and known.offset >= snapshot.offset
        ):
            self._log.truncate_fully_and_start_at(snapshot.offset, self._clock.now_ms())
        self._snapshot = snapshot

    def size_bytes(self) -> int:
        return self._log.size_bytes()

    def durable_advanced(self, log: Log) -> None:
        self._on_durable(log.durable_end)

    def start_moved(self, log: Log) -> None:
        """Nobody waits for that."""

    def went_offline(self, log: Log) -> None:
        self._on_offline(log.offline or "")
