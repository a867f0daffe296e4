"""Which batches of a query are decided, and by which transactions: the commit point of the exactly-once sink.

A decision is a record in an ordinary topic, and the batch's number as an offset of a group named after the sink,
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
from datetime import UTC, datetime
from typing import Any, TypeVar

from tidelog.rpc import Cluster
from tidelog.rpc.groups import committed_topics
from tidelog.rpc.leases import prepare
from tidelog.rpc.produce import produce
from tidelog.rpc.topics import create_topic
from tidelog.rpc.transactions import (
    ENDED,
    FORGOTTEN,
    Described,
    Producer,
    abort_exactly,
    commit_exactly,
    commit_offsets_in,
    describe,
    describe_all,
    end_transaction,
    init_producer,
    open_transactions,
)
from tidelog.spark.sink.fingerprint import UNKNOWN, Fingerprint
from tidelog.spark.sink.producers import EPOCHS_MAX, driver_id, owner_of
from tidelog.spark.sink.sink_name import described, group_of, job_of, older_name
from tidelog.spark.sink.sink_progress import NOTHING, Decided, Standing, decided, note, recorded, standing
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


class Aborted(RuntimeError):
    """What tasks wrote is gone, and nothing was decided: the batch has to be repeated."""


class OtherBatch(RuntimeError):
    """Another batch was decided under this number before: the rows of this one are not written."""


def _is_still(producer: Producer, known: Described) -> bool:
    """Whether a producer has open what it reported."""
    return known.is_open and known.producer == producer


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
        self._tells_older = False
        self._ended = -1  # where the last decision stands whose transactions this one has committed

    def use(self, cluster: Cluster) -> "Decisions":
        """Go on over these connections."""
        self._cluster = cluster
        return self

    def commit(
        self,
        batch: int,
        term: int | None,
        reported: Iterable[Producer],
        made: Fingerprint = UNKNOWN,
        *,
        checked: bool = True,
    ) -> bool:
        """Make the reported transactions the batch, unless it is decided; then end everything. Whether it decided.

        `term` is what the tasks found before they wrote; None where none did. `made` is what the batch was made of:
        OtherBatch where the one that is decided was made of something else, unless that isn't to be `checked`.
        """
        mine = tuple(reported)
        return self._as_driver(
            # A driver that is known needs no stable standing: what others change makes its writing fail.
            lambda known: self._commit(batch, term, Decided(mine, made), checked, stable=not known),
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

    def _commit(self, batch: int, term: int | None, mine: Decided, checked: bool, *, stable: bool) -> bool:
        last = self._standing(stable=stable)
        self._check(batch, term, last)
        if last == NOTHING:
            last = self._recorded()
            self._check(batch, None, last)
            if last == NOTHING:
                self._end_elsewhere(batch, mine)
        takes_over, decides = last.run != self._run or last.older is not None, last.batch < batch
        strangers = self._open(lambda run: run != self._run, last.older or self._inherited_from()) if takes_over else []
        last = self._inherited(last)
        decided = Decided() if decides and last.at == self._ended else self._last_decided(last)
        if decides and decided.transactions:  # its driver was killed, and nobody came to repeat its batch
            commit_exactly(self._cluster, decided.transactions)
        if decides:
            self._prepare(batch, mine.transactions)
        chosen = replace(mine, decided_ms=int(time.time() * 1000)) if decides else decided
        if takes_over or (decides and mine.transactions):  # a batch without rows needs no decision
            last = self._write(Standing(batch, last.term + takes_over, self._run), chosen)
        self._end(batch, chosen.transactions)
        self._ended = last.at
        if self._standing(stable=False).batch < batch:
            self._standing()  # the decision is seen from here on: what a late attempt opens now, it aborts itself
        left = [*strangers, *mine.transactions, *self._open(lambda run: run == self._run)]
        self._sweep(left, {*decided.transactions, *chosen.transactions})
        if not decides:
            self._tell_repeated(batch, mine.made, decided, checked)
        return decides

    def _end_elsewhere(self, batch: int, mine: Decided) -> None:
        """Nothing is decided in this topic yet: what was in another one, which the query had before, comes to its end.

        OtherBatch where that is this batch, or a later one: with nothing left open of what was written again.
        """
        topics = [each for each in committed_topics(self._cluster, group_of(self._sink)) if each != self._topic]
        for topic in self._cluster.topics(topics) if topics else ():
            last = standing(self._cluster, self._sink, topic, stable=True)
            commit_exactly(self._cluster, decided(self._cluster, self._sink, topic, last).transactions)
            if last.batch >= batch:
                self._sweep(mine.transactions, set())
                raise OtherBatch(
                    f"batch {last.batch} of {described(self._sink)} is decided in topic {topic}, and this one, batch "
                    f"{batch}, was to be in {self._topic}. Nothing of this one is written: start it with the option "
                    f"decisionsTopic={topic}"
                )

    def _prepare(self, batch: int, mine: Iterable[Producer]) -> None:
        """What is to be decided is open, and stays so: from here on only a driver ends it, however long that takes.

        Before the decision, since coordinators know nothing of that one: they abort what nobody holds any more.
        """
        names = {each.transactional_id or "": each for each in mine}
        known = describe_all(self._cluster, names)
        gone = [name for name, each in names.items() if name not in known or not _is_still(each, known[name])]
        gone += prepare(self._cluster, (each for each in known.values() if each.leased)) if not gone else ()
        if gone:
            raise Aborted(
                f"what was written for batch {batch} of {described(self._sink)} was aborted before the batch was "
                f"decided ({len(gone)} of {len(names)} transactions, as {gone[0]}): nobody had renewed their leases "
                "for tidelog.transaction.lease.ms, or somebody aborted them by hand. Nothing of the batch is written: "
                "start it again, and it is repeated"
            )

    def _tell_repeated(self, batch: int, made: Fingerprint, decided: Decided, checked: bool) -> None:
        """It is the batch that was decided: that is only told. Or it is another one: then somebody has to see to it."""
        ms = decided.decided_ms
        when = "" if ms is None else f" on {datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        said = f"batch {batch} of {described(self._sink)} was committed before{when}"
        difference, other_rows = made.difference(decided.made), made.other_rows(decided.made)
        if difference is not None and checked:
            raise OtherBatch(f"{said}, but {difference}. Nothing of this one is written. {self._advice()}")
        if difference is not None:
            logger.warning("%s, and that one holds, though %s", said, difference)
        elif other_rows is not None:
            logger.warning(
                "%s, and its repetition makes other rows of the same input (this one %s): those that were written "
                "first hold. If the query was changed on purpose, that counts from the next batch on",
                *(said, other_rows),
            )
        else:
            logger.info("%s: its repetition is dropped", said)

    def _advice(self) -> str:
        kept = "where it is the same batch nevertheless, start it once with the option repetition=kept"
        if job_of(self._sink) is not None:
            return f"Rows of their own take another jobId, or a higher jobBatch; {kept}"
        return (
            "The checkpoint was cut back, or another query began from a copy of it: go on from the newest one, or "
            f"begin with a new one. Or the query makes other rows of the same input: {kept}"
        )

    def _inherited(self, last: Standing) -> Standing:
        """What is to go on from. Under the name of an earlier version nothing is decided any more then.

        A driver of that version that still lives, as one that slept, finds another term, and stops.
        """
        if last.older is None:
            return last
        return Decisions(self._cluster, last.older, self._run, self._topic).hand_over(self._sink, last)

    def _inherited_from(self) -> str | None:
        """The older name that this sink went on from: a run that was killed then may have left its tasks' open."""
        older = older_name(self._sink)
        if older is None:
            return None
        last = standing(self._cluster, older, self._topic)
        return older if decided(self._cluster, older, self._topic, last).heir == self._sink else None

    def hand_over(self, heir: str, seen: Standing) -> Standing:
        def give(_: bool) -> Standing:
            last = self._standing()
            if last == NOTHING:
                last = self._recorded()
            decided = self._last_decided(last)
            if decided.heir not in (None, heir) or (last.batch, last.term) != (seen.batch, seen.term):
                raise Replaced(f"{described(self._sink)} went on elsewhere while it was taken over: start it again")
            if decided.heir is None:
                last = self._write(replace(last, term=last.term + 1, run=self._run), replace(decided, heir=heir))
            return replace(last, older=self._sink)

        return self._as_driver(give)

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
        if not over:
            last = self._inherited(last)
        decided = self._last_decided(last)
        if not over:
            self._write(replace(last, term=last.term + 1, older=None), decided)
        return decided

    def _last_decided(self, last: Standing) -> Decided:
        decision = decided(self._cluster, self._sink, self._topic, last)
        return decision if last.older is None else replace(decision, heir=None)  # which this one is

    def _recorded(self) -> Standing:
        """By the topic, where the group tells nothing: it is forgotten, or has the name that earlier versions gave it.

        A driver of such a version that still lives looks there: it is told of the next decision, too, and stops.
        """
        last = recorded(self._cluster, self._sink, self._topic)
        self._tells_older = last != NOTHING and last.older is None
        return last

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
                f"{self._or_a_namesake()}"
            )

    def _or_a_namesake(self) -> str:
        """What a job in a query's callback may have met besides: nothing tells the abort of another which is which."""
        job = job_of(self._sink)
        if job is None or not job.query:
            return ""
        return (
            f". Or another query of this driver that writes under jobId {job.job} to the same topic failed, and ended "
            "what this one had open: give each a jobId of its own, or the option jobQuery"
        )

    def _open(self, of: Callable[[str], bool], older: str | None = None) -> list[Producer]:
        """What tasks of these runs have open, in the epochs of now; those of the older name too, if there is one."""

        def wanted(name: str) -> bool:
            owner = owner_of(name)
            return owner is not None and owner.sink in (self._sink, older) and of(owner.run)

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
        fields: dict[str, Any] = {
            "batch": decision.batch,
            "term": decision.term,
            "run": decision.run,
            "transactions": [[each.transactional_id, each.id, each.epoch] for each in chosen.transactions],
            **chosen.made.to_json(),
        }
        if chosen.heir is not None:
            fields["heir"] = chosen.heir
        if chosen.decided_ms is not None:
            fields["decided_ms"] = chosen.decided_ms
        record = Record(timestamp=int(time.time() * 1000), key=self._sink.encode(), value=json.dumps(fields).encode())
        batch = build([record], producer_id=driver.id, producer_epoch=driver.epoch, base_sequence=0, transactional=True)
        try:
            at = produce(self._cluster, self._topic, 0, batch, transactional_id=driver.transactional_id)
            if at < 0:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "it was not told where the decision stands: try again")
            made = replace(decision, at=at)
            offset = max(decision.batch, 0), note(made)
            for group in (group_of(self._sink), self._sink) if self._tells_older else (group_of(self._sink),):
                commit_offsets_in(self._cluster, driver, group, {(self._topic, 0): offset})
            self._tells_older = False
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
