"""Which batches of a query are decided, and by which transactions: the commit point of the exactly-once sink.

A decision is a record in an ordinary topic, and the batch's number as an offset of a group that bears the sink's name,
written in one transaction of the driver's. The offset's note says where the record stands. Why it takes just this, and
what a reader may see meanwhile: docs/decisions/0010-the-spark-sink.md.
"""

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.rpc import Cluster
from tidelog.rpc.fetch import PartitionReader
from tidelog.rpc.groups import committed_offset
from tidelog.rpc.offsets import READ_COMMITTED
from tidelog.rpc.produce import produce
from tidelog.rpc.transactions import (
    Producer,
    abandon,
    commit_offsets_in,
    end_transaction,
    init_producer,
    open_transactions,
)
from tidelog.wire.batch import build, iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.record import Record

logger = logging.getLogger("tidelog.spark")

FORGOTTEN = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
"""It ended so long ago that the coordinator knows it no more: what is open is never forgotten."""
ABORTED = (*FORGOTTEN, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
EMPTY_FETCHES_MAX = 60


class RolledBack(RuntimeError):
    """A later batch is decided already: the checkpoint is older than what was written."""


@dataclass(frozen=True, slots=True)
class Decision:
    batch: int
    producers: tuple[Producer, ...]


class Decisions:
    """The driver's side of one sink. Making it fences older drivers: what they decide from now on fails."""

    def __init__(self, cluster: Cluster, sink: str, topic: str) -> None:
        self._cluster = cluster
        self._sink = sink
        self._topic = topic
        self._driver = init_producer(cluster, f"{prefix_of(sink)}driver")

    def commit(self, batch: int, reported: Iterable[Producer]) -> bool:
        """Make the reported transactions the batch, unless it is decided; then end everything. Whether it decided."""
        mine = tuple(reported)
        last = self.last()
        if last is not None and last.batch > batch:
            raise RolledBack(
                f"batch {batch} was to be written, but batch {last.batch} of this query is committed already: the "
                "checkpoint was rolled back or copied. Go on from the newest checkpoint, or start a query of its own "
                "with a new one"
            )
        decided = last is None or last.batch < batch
        decision = last if last is not None and not decided else Decision(batch, mine)
        if decided:
            self._write(decision)
        else:
            logger.warning("batch %d was committed before: its repetition is dropped", batch)
            self._end([each for each in mine if each not in decision.producers], commit=False)
        self._end(decision.producers, commit=True)
        self.sweep(decision)
        return decided

    def abort(self, reported: Iterable[Producer]) -> None:
        """End what tasks reported of a batch that failed, unless it was decided after all."""
        last = self.last()
        kept = () if last is None else last.producers
        self._end([each for each in reported if each not in kept], commit=False)

    def sweep(self, decision: Decision) -> None:
        """Abort what attempts of this batch or earlier ones left open without being chosen: it holds readers up.

        Later batches are left alone: a driver that slept through its replacement must not touch what that one decided.
        """
        kept = {each.transactional_id for each in decision.producers}
        start = task_prefix(self._sink)
        names = [
            name
            for name in open_transactions(self._cluster, start)
            if name not in kept and _batch_of(name, start) <= decision.batch
        ]
        if names:
            logger.info("aborting %d transactions that were not chosen", len(names))
            abandon(self._cluster, names)

    def last(self) -> Decision | None:
        """The last batch that was decided."""
        found = committed_offset(self._cluster, self._sink, (self._topic, 0))
        if found is None:
            return None
        batch, note = found
        at = int(note)
        tries = EMPTY_FETCHES_MAX
        for part in PartitionReader(self._cluster, self._topic, 0, at, at + 1, isolation=READ_COMMITTED):
            for header in iterate(part.records):
                for record in records(part.records, header):
                    if record.offset == at and record.value is not None:
                        return _read(record.value)
            tries -= 1
            if not tries:
                break
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the decision on batch {batch} of {self._sink} is not at offset {at} of {self._topic}-0: is it new?",
        )

    def _write(self, decision: Decision) -> None:
        told = {
            "batch": decision.batch,
            "transactions": [[each.transactional_id, each.id, each.epoch] for each in decision.producers],
        }
        value = json.dumps(told).encode()
        record = Record(timestamp=int(time.time() * 1000), key=self._sink.encode(), value=value)
        driver = self._driver
        batch = build([record], producer_id=driver.id, producer_epoch=driver.epoch, base_sequence=0, transactional=True)
        at = produce(self._cluster, self._topic, 0, batch, transactional_id=driver.transactional_id)
        commit_offsets_in(self._cluster, driver, self._sink, {(self._topic, 0): (decision.batch, str(at))})
        self._driver = end_transaction(self._cluster, driver, commit=True)  # the commit point

    def _end(self, producers: Iterable[Producer], *, commit: bool) -> None:
        """What is decided must end; what isn't may have ended in another way already."""
        harmless = FORGOTTEN if commit else ABORTED
        for each in producers:
            try:
                end_transaction(self._cluster, each, commit=commit)
            except KafkaError as error:
                if error.code not in harmless:
                    raise
                logger.debug("%s had ended already: %s", each.transactional_id, error)


def prefix_of(sink: str) -> str:
    return f"tidelog-spark-{sink}-"


def task_prefix(sink: str) -> str:
    """What a task's transactional id begins with; the batch and something random follow."""
    return f"{prefix_of(sink)}task-"


def _batch_of(name: str, start: str) -> int:
    batch = name[len(start) :].partition("-")[0]
    return int(batch) if batch.isdecimal() else 0


def _read(value: bytes) -> Decision:
    told = json.loads(value)
    return Decision(told["batch"], tuple(Producer(name, id, epoch) for name, id, epoch in told["transactions"]))
