"""Any order of steps of drivers and tasks that don't know of each other: each batch is there once.

Several queries and jobs at a time, each with drivers that are started while others live, commits and aborts in
processes of their own that outlive who called them, attempts that are late, and Python workers that serve all of them
one after the other. Some jobs were begun by an earlier version. A seed chooses who moves (acting.py), who is killed,
which requests fail, and when the broker is killed; leases end while somebody stands still. A driver that dies is
followed by a new run, as Spark starts it: from the checkpoint, which all runs of a query share. A job may also go on to
its next batch: then the one before must be there whole or not at all.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

import pyarrow

from tests.spark.acting import Actor, Play, in_turns, step
from tests.spark.writing import TWO_PHASE, Query, decided_before, made_of, own
from tidelog.client import Admin
from tidelog.rpc.errors import Unreachable
from tidelog.spark.sink import data_sink, decisions
from tidelog.spark.sink.data_sink import Written, write_rows
from tidelog.spark.sink.decisions import Aborted, Decisions, Replaced
from tidelog.spark.sink.producers import Attempt, Producers
from tidelog.spark.sink.sink_name import Job, job_sink
from tidelog.testing import Broker

arrow: Any = pyarrow
pytestmark = pytest.mark.usefixtures("own_connections")

BATCHES = 5
ROWS = 4
STEPS_MAX = 4000
ALIVE_MAX = 7
RESTARTS_MAX = 2
SHORT_LEASE_MS = 250
"""So short that transactions are aborted under those who stand still."""
EACH_ROW_ALONE = {"kafka.batch.size": "1"}
"""So that a transaction is open from its task's first row on."""


class Crew:
    """Python workers: each runs one task at a time, of any query; one that is killed doesn't come back."""

    def __init__(self, play: Play) -> None:
        self._chance = play.chance
        self._idle: list[Producers] = []

    def take(self) -> Producers:
        if not self._idle or self._chance.random() < 0.1:
            return Producers()
        return self._idle.pop(self._chance.randrange(len(self._idle)))

    def give_back(self, worker: Producers) -> None:
        self._idle.append(worker)


class Stage:
    """A query or a job, its checkpoint, and everybody who works on it."""

    def __init__(self, broker: Broker, play: Play, crew: Crew, *, job: bool) -> None:
        self.play, self.chance, self.crew, self.job = play, play.chance, crew, job
        self.query = Query(broker.bootstrap, "job" if job else "stage", **EACH_ROW_ALONE)
        self.begun = -1
        self.committed: set[int] = set()
        self.runs = 0
        self.older: Query | None = None
        if job:
            name = self.query.sink
            self.query.sink = job_sink(Job(self.query.topic, "query", name))
            if self.chance.random() < 0.5:
                self.decide_before(f"job-{name}")

    def decide_before(self, sink: str) -> None:
        """The first batch was decided by an earlier version, whose driver was killed before it could end it."""
        self.begun = 0
        self.older = self.query.under(sink)
        options = replace(self.query.options, leased=False)
        for row in rows_of(0)[:2]:  # an attempt that lost, and one that is not of the batch
            write_rows(options, Attempt(sink, "lost", 0), slowly([row]), Producers())
        written = write_rows(options, Attempt(sink, "before", 0), slowly(rows_of(0)), Producers())
        decided_before(options, sink, 0, written, end=False)

    @property
    def finished(self) -> bool:
        return max(self.committed, default=-1) >= BATCHES - 1

    def next_batch(self) -> int:
        """A query goes on behind its checkpoint, repeating what isn't in it; a job may leave a batch behind."""
        last = max(self.committed, default=-1)
        if not self.job or self.begun <= last:
            return last + 1
        return self.begun + self.chance.choice((0, 1))

    def start_run(self) -> None:
        self.runs += 1
        run = f"run-{self.runs}"
        self.play.spawn(lambda: self.drive(run))

    def drive(self, run: str) -> None:
        """A driver's JVM: it starts tasks, and processes that commit or abort, and is at an end when one fails."""
        process: Decisions | None = None
        while not self.finished:
            batch = self.next_batch()
            self.begun = max(self.begun, batch)
            parts = self.chance.choice((1, 2, 3, 4))
            if self.chance.random() < 0.4:  # an attempt too many
                self.play.spawn(lambda batch=batch: self.write(run, batch, 0, 1))
            reports: list[Written] = []
            with suppress(Replaced, Unreachable):  # swept by others while it wrote, or without a broker
                reports.extend(self.write(run, batch, part, parts) for part in range(parts))
            if len(reports) < parts or self.chance.random() < 0.1:  # a task failed
                self.abort(run, batch, reports)
                return
            if process is None or self.chance.random() < 0.3:
                process = self.process(run)
            if not self.commit(process, batch, reports):
                self.abort(run, batch, reports)
                return
            self.committed.add(batch)

    def write(self, run: str, batch: int, part: int, parts: int) -> Written:
        values = [value for index, value in enumerate(rows_of(batch)) if index % parts == part]
        worker = self.crew.take()
        written = self.query.write(batch, slowly(values), run=run, worker=worker)
        self.crew.give_back(worker)
        return written

    def process(self, run: str) -> Decisions:
        options = self.query.options
        return Decisions(data_sink.cluster_of(options.bootstrap, options.rpc), self.query.sink, run, options.decisions)

    def commit(self, process: Decisions, batch: int, reports: list[Written]) -> bool:
        """Whether it went well; Spark may also lose patience, and what it called goes on."""
        made = made_of(*reports)
        committing = self.play.spawn(lambda: process.commit(batch, term_of(reports), own(*reports), made))
        return self.wait_for(committing)

    def abort(self, run: str, batch: int, reports: list[Written]) -> None:
        process = self.process(run)
        self.wait_for(self.play.spawn(lambda: process.abort(batch, term_of(reports), own(*reports))))

    def wait_for(self, other: Actor) -> bool:
        while other.is_alive():
            step()
            if self.chance.random() < 0.02:
                return False
        return other.done

    def finish(self) -> None:
        """A last driver, when all others are gone, does what is left, and one more batch."""
        process, worker, first = self.process("last"), Producers(), self.next_batch()
        for batch in range(first, max(first, BATCHES - 1) + 2):
            self.begun = max(self.begun, batch)
            while batch not in self.committed:
                written = self.query.write(batch, slowly(rows_of(batch)), run="last", worker=worker)
                with suppress(Aborted):  # a machine that is busy makes a short lease shorter
                    process.commit(batch, written.term, own(written), made_of(written))
                    self.committed.add(batch)

    def check(self) -> None:
        seen = Counter(self.query.seen())
        twice = {row: times for row, times in seen.items() if times > 1}
        missing = {row for batch in self.committed for row in rows_of(batch) if row not in seen}
        torn = [batch for batch in range(self.begun + 1) if 0 < len(seen.keys() & set(rows_of(batch))) < ROWS]
        left = [*self.query.open(), *(self.older.open() if self.older else [])]
        assert (twice, missing, torn, left) == ({}, set(), [], [])
        assert self.job or self.committed == set(range(self.begun + 1))


def term_of(reports: list[Written]) -> int | None:
    return min((each.term for each in reports if each.term is not None), default=None)


def rows_of(batch: int) -> list[bytes]:
    return [b"%d-%d" % (batch, row) for row in range(ROWS)]


def slowly(values: list[bytes]) -> Iterator[Any]:
    for value in values:
        yield arrow.record_batch({"key": [value], "value": [value]})
        step()


def played(broker: Broker, seed: int, *, restarts: int) -> tuple[Play, list[Stage]]:
    """Turns by chance, until a driver of each query has done all batches and everybody is gone."""
    play = Play(seed)
    crew = Crew(play)
    jobs = (play.chance.random() < 0.5 for _ in range(play.chance.choice((1, 2, 3))))
    stages = [Stage(broker, play, crew, job=job) for job in jobs]
    for stage in stages:
        stage.start_run()
        stage.start_run()
    for turn in range(STEPS_MAX):
        calm = turn > STEPS_MAX // 2  # drivers that fight for ever come to no end
        alive, drawn = play.alive(), play.chance.random()
        unfinished = [stage for stage in stages if not stage.finished]
        if (not alive and not unfinished) or play.troubles():
            return play, stages
        if unfinished and (not alive or (drawn < 0.1 and len(alive) < ALIVE_MAX and not calm)):
            play.chance.choice(unfinished).start_run()
        elif drawn < 0.12 and restarts:
            restarts -= 1
            broker.kill()
            broker.start()
        elif alive:
            play.turn(kill=drawn > 0.97 and not calm)
    raise AssertionError("the play has no end")


@pytest.fixture(scope="module", params=[900_000, SHORT_LEASE_MS], ids=["", "short-leases"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    settings = {**TWO_PHASE, "tidelog.transaction.lease.ms": request.param}
    with Broker(settings, offsets_topic_num_partitions=2) as broker:
        Admin(broker.bootstrap).create_topic("tidelog-spark-decisions", 1)
        yield broker


FAST = (1, 2, 5)  # the last with a broker that is killed
SEEDS = [pytest.param(seed, marks=() if seed in FAST else pytest.mark.long) for seed in range(300)]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_batch_is_there_once_in_any_order_of_steps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with monkeypatch.context() as patch:
        in_turns(patch)
        patch.setattr(decisions, "TIMEOUTS_MS", (400,))  # a driver waits for another's that stands still
        play, stages = played(broker, seed, restarts=1 if seed % 6 == 5 else 0)
    assert play.troubles() == []
    for stage in stages:
        stage.finish()
    for stage in stages:
        stage.check()
