"""Running a pipeline: a Spark session, a query for each sink and one for bad rows, watched until they end."""

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from tidelog.spark.checkpoint import unfinished
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import Sink, TopicSink, TopicSource
from tidelog.spark.pipeline.quarantine import notes
from tidelog.spark.pipeline.quarantine.restart import set_aside, settle
from tidelog.spark.pipeline.run.batch_run import StillRun, begin_still
from tidelog.spark.pipeline.run.board import Board
from tidelog.spark.pipeline.run.held_up import check_done, held_up
from tidelog.spark.pipeline.run.queries import Queries
from tidelog.spark.pipeline.run.reason import reason_of, words_of
from tidelog.spark.pipeline.run.resets import beginning, checkpoint_of, checkpoints_of
from tidelog.spark.pipeline.run.session import DEFAULT_MASTER, LOG, NoSpark, ended, session
from tidelog.spark.pipeline.run.state_check import advice, check_state, is_of_another_query
from tidelog.spark.pipeline.run.stop_signals import Stop
from tidelog.spark.pipeline.sinks.writers import (
    bad_rows,
    end_streams,
    start_bad_rows,
    start_stream,
    write_bad_rows,
    write_batch,
)
from tidelog.spark.pipeline.tables.build import build, check_topics, make_topics
from tidelog.spark.pipeline.tables.error_location import failed_on_a_row, pointing_at_rows

logger = logging.getLogger("tidelog.spark")

WATCH_S = 0.5
ENDED_S = 0.5
GO_ON = "run it again to go on from there"

__all__ = ["NoSpark", "check", "check_topics", "reason_of", "run", "run_at", "session"]


def check(pipeline: Pipeline, spark: Any) -> dict[str, list[str]]:
    """Everything that can be known before it runs; the columns of each table."""
    check_topics(pipeline)
    tables = build(spark, pipeline)
    check_state(spark, pipeline, tables)
    return {name: rows.columns for name, rows in tables.items() if not name.endswith("!")}


def run_at(
    master: str | None,
    pipeline: Pipeline,
    *,
    once: bool,
    start: str | None,
    tell: Callable[[str], None],
    stop: Stop,
) -> bool:
    """Run at a master, with a session of its own that ends with it; whether it is done, and not stopped before.

    What can be refused is refused before Spark starts, which takes a while: a topic that isn't there, a state that is
    another's or in use, a start where a checkpoint is.
    """
    check_topics(pipeline)
    with pipeline.hold_state():
        _take_state(pipeline, start)
        before = held_up(pipeline) if _ends(pipeline, once) else []
        with Board(pipeline, tell, stop) as board, stop.on_signals(tell):
            tell(f"{pipeline.name}: starting Spark at {master or DEFAULT_MASTER}")
            spark = session(pipeline, master, tell=tell)
            stop.gently = True
            try:
                board.done = _run(pipeline, spark, once, start, board, stop)
            except Exception as error:
                if gone := ended(spark, ENDED_S):
                    raise RuntimeError(f"{pipeline.name}: {gone}; {pipeline.state / LOG} may say why") from error
                raise
            finally:
                if not ended(spark):
                    spark.stop()
            if board.done:
                check_done(pipeline, before)
    return board.done


def run(
    pipeline: Pipeline,
    spark: Any,
    *,
    once: bool = False,
    start: str | None = None,
    tell: Callable[[str], None] = print,
    stop: Stop | None = None,
) -> bool:
    """Run until it is stopped; with `once` until everything that is there now is done. Raises what ends a query.

    HeldUp where that was all that could be read: records behind an open transaction are there, too.
    Whether it is done, and was not stopped before.
    """
    check_topics(pipeline)
    with pipeline.hold_state():
        _take_state(pipeline, start)
        stop = Stop() if stop is None else stop  # one that nobody wished for yet is false
        before = held_up(pipeline) if _ends(pipeline, once) else []
        with Board(pipeline, tell, stop) as board:
            board.done = _run(pipeline, spark, once, start, board, stop)
            if board.done:
                check_done(pipeline, before)
    return board.done


class QueryFailed(RuntimeError):
    """A query that ended the run, and what to do about it."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.advice = advice


def _advice(pipeline: Pipeline, query: str, failure: Any) -> str:
    return advice(pipeline, query) if is_of_another_query(failure) else GO_ON


def _ends(pipeline: Pipeline, once: bool) -> bool:
    """Whether a run is to come to its end by itself."""
    return once or not pipeline.streams


def _take_state(pipeline: Pipeline, start: str | None) -> None:
    pipeline.take_state()
    checkpoints = checkpoints_of(pipeline)
    _clear_torn(checkpoints)
    began = checkpoints.exists() or any(pipeline.state.glob("initial-*.json"))
    if start is not None and began:
        raise pipeline.problem(
            ("state",),
            f"--from is for the first run, and {pipeline.state} holds a checkpoint: `tidelog pipeline reset "
            f"{pipeline.file} --sink NAME --from {start}` has a sink begin anew",
        )


def _clear_torn(checkpoints: Path) -> None:
    """Remove what a run left that was killed while it wrote its very first offsets.

    Spark writes beside a file and renames; where nothing but such a beginning is there, it refuses to begin
    (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY), and would for ever.
    """
    for folder in checkpoints.glob("*/*/"):
        files = list(folder.iterdir())
        if all(file.name.startswith(".") and ".tmp" in file.name for file in files):
            for file in files:
                file.unlink()


def _run(pipeline: Pipeline, spark: Any, once: bool, start: str | None, board: Board, stop: Stop) -> bool:
    decoded = {name: source for name, source in pipeline.sources.items() if source.is_decoded}
    still = [name for name, source in decoded.items() if not pipeline.is_watched(source)]
    with stop.cancelling(spark):
        make_topics(pipeline)
        tables = build(spark, pipeline, start)
        if stop:
            return False
        if not pipeline.streams:
            _run_still(pipeline, tables, still, board)
            return True
        _still_bad_rows(pipeline, tables, still)
        settle(spark, pipeline)
        _warm(pipeline, spark)
    queries = Queries(board.tell)

    def tables_for(name: str) -> dict[str, Any]:
        aside = notes.aside(pipeline.state, name, unfinished(checkpoint_of(pipeline, name)))
        if reset := beginning(pipeline, name):
            return build(spark, pipeline, reset.start, aside=aside, begins=f"{name}-{reset.number}")
        return build(spark, pipeline, start, aside=aside) if aside else tables

    def begin_sink(sink: Sink, *, once: bool) -> Any:
        return start_stream(pipeline, sink, tables_for(sink.name)[sink.from_table], once=once)

    def begin_bad_rows(name: str, source: str, *, once: bool) -> Any:
        return start_bad_rows(pipeline, name, tables_for(name)[f"{source}!"], once=once)

    def goes_on(name: str, failure: Any) -> bool:
        try:
            with stop.cancelling(spark):
                alive = _now_and_then(partial(board.look, queries.by_name, "running"), stop)
                return set_aside(spark, pipeline, name, tables, failure, board.tell, alive)
        except (PySparkException, InterruptedError) as error:
            logger.warning("%s: could not look for the row that it failed on: %s", name, words_of(error))
            return False

    begin = {sink.name: partial(begin_sink, sink) for sink in pipeline.sinks}
    for source in decoded:
        if source not in still:
            name = pipeline.bad_rows_sink(source).name
            begin[name] = partial(begin_bad_rows, name, source)
    try:
        for name, starting in begin.items():
            if stop:
                return False
            queries.start(name, partial(starting, once=once))
            board.look(queries.by_name, "starting")
        board.tell(f"{pipeline.name} runs: {', '.join(begin)}")
        return _watch(pipeline, queries, board, stop, goes_on)
    finally:
        queries.stop()
        end_streams(pipeline, queries.by_name)


def _now_and_then(act: Callable[[], None], stop: Stop) -> Callable[[], None]:
    """Called as often as one likes, `act` is called no more often than a run is looked at.

    InterruptedError once a stop is wished.
    """
    last = time.monotonic()

    def called() -> None:
        nonlocal last
        if stop:
            raise InterruptedError("the run is to stop")
        if time.monotonic() > last + WATCH_S:
            act()
            last = time.monotonic()

    return called


def _warm(pipeline: Pipeline, spark: Any) -> None:
    """Run one small task before several queries start at once.

    Spark fills a map of the data source when its first task runs, and fails other queries that are being sent out then
    ("Task not serializable: Illegal size of collection").
    """
    sources = [source for source in pipeline.sources.values() if isinstance(source, TopicSource)]
    topics = [topic for source in sources for topic in source.topics]
    if topics:
        reading = spark.read.format("tidelog").options(**pipeline.kafka)
        reading.option("subscribe", topics[0]).option("endingTimestamp", "0").load().count()


def _watch(pipeline: Pipeline, running: Queries, board: Board, stop: Stop, goes_on: Callable[[str, Any], bool]) -> bool:
    """Until all are done (True), one failed for good (raises its reason), or a stop is wished.

    `goes_on` does what it can about a failure; where that is enough, the query is started again.
    """
    while not stop:
        failed = running.mend()
        active = any(query.isActive for query in running.by_name.values())
        board.look(running.by_name, "running" if active or failed else "done")
        for name in failed:
            failure = running.by_name[name].exception()
            if not stop and not goes_on(name, failure) and not stop:
                error = QueryFailed(f"{pipeline.name}: {name}: {reason_of(failure)}", _advice(pipeline, name, failure))
                raise failed_on_a_row(pipeline, failure) or error
            if not stop:
                running.again(name)
        if not active and not failed:
            return True
        stop.wait(WATCH_S)
    board.write("stopping")
    return False


def _run_still(pipeline: Pipeline, tables: dict[str, Any], decoded: list[str], board: Board) -> None:
    """A pipeline without streams: every table once. A run that was cut short is repeated, and no row is there twice."""
    began = time.time()
    this = begin_still(pipeline, began, [pipeline.bad_rows_sink(each) for each in decoded])
    board.write("running")
    for sink in pipeline.sinks:
        name = sink.name
        if name in this.mended:
            board.tell(
                f"{pipeline.name}: {name} was written before, by a run that was cut short, and the file has changed "
                f"what it is made of since: its rows are written {_how(sink)}"
            )
        with pointing_at_rows(pipeline):
            number = this.number(name)
            write_batch(pipeline, sink, tables[sink.from_table], number, _of_run(number))
        this.done(name)
        board.tell(f"{pipeline.name}: {name} done after {time.time() - began:.1f} s")
    _still_bad_rows(pipeline, tables, decoded, this)
    this.end()


def _how(sink: Sink) -> str:
    return "too" if isinstance(sink, TopicSink) else "in place of those"


def _still_bad_rows(pipeline: Pipeline, tables: dict[str, Any], sources: list[str], of: StillRun | None = None) -> None:
    """The bad rows of tables that are read as they are: sent by each run, since each run reads them anew."""
    for source in sources:
        name = pipeline.bad_rows_sink(source).name
        number = int(time.time()) if of is None else of.number(name)
        write_bad_rows(pipeline, name, bad_rows(tables[f"{source}!"]), number, _of_run(number))


def _of_run(number: int) -> dict[str, str]:
    """What a batch is known by of which there is one a run, also where its tables have grown when it is repeated."""
    return {"jobInput": f"run-{number}"}
