"""Which batches of a query are decided, and by which transactions: the commit point of the exactly-once sink.

A decision is a record in an ordinary topic, and the batch's number as an offset of a group that bears the sink's name,
written in one transaction of the driver's. The offset's note says where the record stands, in which term, and which run
of the query holds it: a term begins when another run takes over. Why it takes just this, and what a reader may see
meanwhile: docs/decisions/0010-the-spark-sink.md.
"""

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from typing import TypeVar

from tidelog.rpc import Cluster
from tidelog.rpc.produce import produce
from tidelog.rpc.topics import create_topic
from tidelog.rpc.transactions import (
    ENDED,
    FORGOTTEN,
    Producer,
    abort_exactly,
    commit_exactly,
    commit_offsets_in,
    describe,
    end_transaction,
    init_producer,
    open_transactions,
)
from tidelog.spark.producers import EPOCHS_MAX, driver_id, owner_of
from tidelog.spark.standing import NOTHING, Decided, Standing, decided, note, recorded, standing
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.record import Record

logger = logging.getLogger("tidelog.spark")

T = TypeVar("T")

TRIES = 3
SEGMENT_BYTES = 16 * 1024 * 1024
TIMEOUTS_MS = (60_000, 15_000, 5_000, 1_000)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class RolledBack(RuntimeError):
    """A later batch is decided already: the checkpoint is older than what was written."""


class Replaced(RuntimeError):
    """Another run of the query has taken over: this one may decide nothing more."""


def _is_over(batch: int, term: int | None, last: Standing) -> bool:
    """Whether nothing that was written for the batch in this term can be decided any more."""
    return last.batch >= batch or (term is not None and term != last.term)


class Decisions:
    """The driver's side of one run of a sink, for as long as one process of the driver's lives.

    The first commit takes the driver's transactional id over, which fences other drivers: what they decide from then on
    fails. Later ones go on as the same producer, and fail where another driver has taken it.
    """

    def __init__(self, cluster: Cluster, sink: str, run: str, topic: str) -> None:
        self._cluster = cluster
        self._sink = sink
        self._run = run
        self._topic = topic
        self._driver: Producer | None = None
        self._ended = -1  # where the last decision stands whose transactions this one has committed

    def use(self, cluster: Cluster) -> "Decisions":
        """Go on over these connections."""
        self._cluster = cluster
        return self

    def commit(self, batch: int, term: int | None, reported: Iterable[Producer], rows: int = 0) -> bool:
        """Make the reported transactions the batch, unless it is decided; then end everything. Whether it decided.

        `term` is what the tasks found before they wrote; None where none did.
        """
        mine = tuple(reported)
        return self._as_driver(
            # A driver that is known needs no stable standing: what others change makes its writing fail.
            lambda known: self._commit(batch, term, mine, rows, stable=not known),
            before=lambda: self._check(batch, term, self._standing(stable=False)),
        )

    def _as_driver(self, decide: Callable[[bool], T], before: Callable[[], None] = lambda: None) -> T:
        """Call `decide` as the driver, which it may be already; `before` where others are to be fenced for it.

        Where another driver fences this one in between, what that did is looked at, and it is tried again.
        """
        for left in reversed(range(TRIES)):
            known = self._driver is not None and self._driver.epoch < EPOCHS_MAX
            if not known:
                self._make_topic()
                before()
                self._driver = self._taken_over()
            try:
                return decide(known)
            except Replaced:
                if self._driver is not None or not left:
                    raise
                logger.info("%s: another driver had the decisions meanwhile; looking what it did", self._sink)
        raise AssertionError("the last try returns or raises")

    def _make_topic(self) -> None:
        """The topic of decisions, made on first use: one partition, compacted, so that it stays small.

        A new query reads all of it once, and compaction leaves the newest segment alone: segments are small too.
        """
        if self._topic in self._cluster.topics([self._topic]):
            return
        configs = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        try:
            create_topic(self._cluster, self._topic, 1, configs)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def _taken_over(self) -> Producer:
        """The driver's producer, with as much time for a transaction as the brokers allow."""
        for timeout_ms in TIMEOUTS_MS:
            try:
                return init_producer(self._cluster, driver_id(self._sink), timeout_ms=timeout_ms)
            except KafkaError as error:
                if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT or timeout_ms == TIMEOUTS_MS[-1]:
                    raise
        raise AssertionError("the last try returns or raises")

    def _commit(self, batch: int, term: int | None, mine: tuple[Producer, ...], rows: int, *, stable: bool) -> bool:
        last = self._standing(stable=stable)
        self._check(batch, term, last)
        if last == NOTHING:
            last = self._recorded()
            self._check(batch, None, last)
        takes_over, decides = last.run != self._run, last.batch < batch
        strangers = self._open(lambda run: run != self._run) if takes_over else []
        decided = Decided() if decides and last.at == self._ended else self._last_decided(last)
        if decides and decided.transactions:  # its driver was killed, and nobody came to repeat its batch
            commit_exactly(self._cluster, decided.transactions)
        chosen = Decided(mine, rows) if decides else decided
        if takes_over or (decides and mine):  # a batch without rows needs no decision
            last = self._write(Standing(batch, last.term + takes_over, self._run), chosen)
        if not decides:
            self._tell_repeated(batch, rows, decided.rows)
        self._end(batch, chosen.transactions)
        self._ended = last.at
        if self._standing(stable=False).batch < batch:
            self._standing()  # the decision is seen from here on: what a late attempt opens now, it aborts itself
        left = [*strangers, *mine, *self._open(lambda run: run == self._run)]
        self._sweep(left, {*decided.transactions, *chosen.transactions})
        return decides

    def _tell_repeated(self, batch: int, rows: int, before: int) -> None:
        said = f"{self._sink}: batch {batch} was committed before: its repetition is dropped"
        if rows != before:
            said += (
                f", though it has {rows} rows and that one had {before}. Other rows take another jobId or jobBatch; of "
                "a stream, the query was changed, or its checkpoint rolled back or copied"
            )
        logger.warning(said)

    def abort(self, batch: int, term: int | None, reported: Iterable[Producer]) -> None:
        """End what this run has open of a batch that failed: abort it, unless it was decided after all.

        A term begins, so that neither a commit that still goes on somewhere nor an attempt that is late counts on what
        is aborted here. Where that is so already, other drivers are left in peace.
        """
        left = [*reported, *self._open(lambda run: run == self._run)]  # before the term begins
        if _is_over(batch, term, self._standing(stable=False)):
            decided = self._last_decided(self._standing())
        else:
            decided = self._as_driver(lambda _: self._begin_term(batch, term))
        kept = set(decided.transactions)
        commit_exactly(self._cluster, (each for each in left if each in kept))
        self._sweep(left, kept)

    def _begin_term(self, batch: int, term: int | None) -> Decided:
        """The last decision, written again under the next term."""
        last = self._standing()
        over = _is_over(batch, term, last)
        if last == NOTHING:
            last = self._recorded()
        decided = self._last_decided(last)
        if not over:
            self._write(replace(last, term=last.term + 1), decided)
        return decided

    def _last_decided(self, last: Standing) -> Decided:
        return decided(self._cluster, self._sink, self._topic, last)

    def _recorded(self) -> Standing:
        return recorded(self._cluster, self._sink, self._topic)

    def _standing(self, *, stable: bool = True) -> Standing:
        return standing(self._cluster, self._sink, self._topic, stable=stable)

    def _check(self, batch: int, term: int | None, last: Standing) -> None:
        if last.batch > batch:
            raise RolledBack(
                f"batch {batch} was to be written, but batch {last.batch} of this query is committed already: the "
                "checkpoint was rolled back or copied. Go on from the newest checkpoint, or start a query of its own "
                "with a new one. Of a job: jobBatch only grows"
            )
        if term is not None and term != last.term:
            raise Replaced(
                f"another driver of this query took over while batch {batch} was being written (term {last.term}, not "
                f"{term}): two run on one checkpoint. This one stops; start it again when the other is gone"
            )

    def _open(self, of: Callable[[str], bool]) -> list[Producer]:
        """What tasks of these runs have open, in the epochs of now."""

        def wanted(name: str) -> bool:
            owner = owner_of(name)
            return owner is not None and owner.sink == self._sink and of(owner.run)

        return open_transactions(self._cluster, wanted)

    def _sweep(self, left: Iterable[Producer], but: Set[Producer]) -> None:
        """Abort what attempts left open without being chosen: it holds readers up."""
        ended = abort_exactly(self._cluster, dict.fromkeys(each for each in left if each not in but))
        if ended:
            logger.info("%s: aborted %d transactions that were not chosen", self._sink, ended)

    def _write(self, decision: Standing, chosen: Decided) -> Standing:
        """The commit point: a record and an offset, in one transaction. The decision, and where it stands."""
        driver = self._driver
        assert driver is not None
        told = {
            "batch": decision.batch,
            "term": decision.term,
            "run": decision.run,
            "rows": chosen.rows,
            "transactions": [[each.transactional_id, each.id, each.epoch] for each in chosen.transactions],
        }
        record = Record(timestamp=int(time.time() * 1000), key=self._sink.encode(), value=json.dumps(told).encode())
        batch = build([record], producer_id=driver.id, producer_epoch=driver.epoch, base_sequence=0, transactional=True)
        try:
            at = produce(self._cluster, self._topic, 0, batch, transactional_id=driver.transactional_id)
            if at < 0:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "it was not told where the decision stands: try again")
            made = replace(decision, at=at)
            offset = max(decision.batch, 0), note(made)
            commit_offsets_in(self._cluster, driver, self._sink, {(self._topic, 0): offset})
            self._driver = end_transaction(self._cluster, driver, commit=True)
            return made
        except Exception as error:
            self._driver = None
            with contextlib.suppress(Exception):  # or else readers of decisions wait until its time is over
                end_transaction(self._cluster, driver, commit=False)
            if isinstance(error, KafkaError) and error.code in ENDED:  # by another driver, or since it took too long
                raise Replaced(
                    f"batch {decision.batch} can't be decided: another driver of this query has taken over. This one "
                    "stops; start it again when the other is gone"
                ) from error
            raise

    def _end(self, batch: int, chosen: Iterable[Producer]) -> None:
        """Commit what is decided; asking again for what was committed is harmless."""
        for each in chosen:
            try:
                end_transaction(self._cluster, each, commit=True)
            except KafkaError as error:
                if error.code in FORGOTTEN or (error.code in FENCED and self._goes_on(each)):
                    logger.debug("%s had ended before: %s", each.transactional_id, error)
                    continue
                if error.code in ENDED:
                    raise KafkaError(
                        error.code,
                        f"batch {batch} of {self._sink} is decided, but its transaction {each.transactional_id} can't "
                        "be committed: it was aborted by hand, and its rows are not there for readers",
                    ) from error
                raise

    def _goes_on(self, decided: Producer) -> bool:
        """Whether the worker has taken its id again, for a later batch: only after what was decided had ended.

        An operator who aborts a transaction gives its id a timeout, by which that is told apart.
        """
        known = describe(self._cluster, decided.transactional_id or "")
        return known is None or known.two_phase
