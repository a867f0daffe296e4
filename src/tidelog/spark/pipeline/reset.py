"""`tidelog pipeline reset`: a query's checkpoint and state are forgotten, and it begins anew. Needs no Spark.

In this order, so that it may be cut off anywhere and be repeated: what the query has open is ended, its checkpoint is
moved away at once, what else is kept of its batches goes, and then it is noted that it begins anew. Where only the last
is missing, sinks refuse what comes under a known batch's number, and lose nothing.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tidelog.spark.checkpoint import last_finished, query_id
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.quarantine import notes
from tidelog.spark.pipeline.run.resets import Reset, checkpoint_of, checkpoints_of, last_reset, names_of, note_reset
from tidelog.spark.pipeline.sinks import left_out
from tidelog.spark.sink.abort_run import end_owned
from tidelog.spark.sink.producers import Owner
from tidelog.spark.sink.sink_name import Job, job_of, job_sink, older_name
from tidelog.spark.sink.sink_options import read_sink_options

REMOVED = ".removed"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a query was: how many micro-batches it had finished, if any, and whether it had state."""

    batches: int | None
    stateful: bool


def queries_of(pipeline: Pipeline) -> list[str]:
    """The queries that may be reset: those of the file, and what else has a checkpoint, as queries for bad rows do."""
    named = [sink.name for sink in pipeline.sinks]
    there = {each.name for each in checkpoints_of(pipeline).glob("*/") if not each.name.startswith(".")}
    return [*named, *sorted(there - set(named))]


def described(pipeline: Pipeline, query: str) -> Forgotten:
    checkpoint = checkpoint_of(pipeline, query)
    last = last_finished(checkpoint)
    return Forgotten(None if last is None else last + 1, (checkpoint / "state").exists())


def reset(pipeline: Pipeline, query: str, start: str | None) -> Reset:
    """Have a query of a pipeline that doesn't run begin anew, at `start` or where the file says."""
    if pipeline.check_state() is None:
        raise pipeline.problem(("state",), f"{pipeline.name} never ran: there is nothing to reset in {pipeline.state}")
    with pipeline.hold_state():
        checkpoint = checkpoint_of(pipeline, query)
        _end_what_is_open(pipeline, query, checkpoint)
        away = checkpoint.parent / f"{REMOVED}-{query}-{last_reset(pipeline, query).number}"
        if checkpoint.exists():
            shutil.rmtree(away, ignore_errors=True)
            checkpoint.rename(away)
        left_out.forget(pipeline.state, query)
        notes.forget_batch(pipeline.state, query)
        made = note_reset(pipeline, query, start)
        shutil.rmtree(away, ignore_errors=True)
        return made


def _end_what_is_open(pipeline: Pipeline, query: str, checkpoint: Path) -> None:
    """Readers of its topic wait for what a run that was killed left open: nobody would come to end it."""
    given = pipeline.topic_options(query)
    if given is None:
        return
    names = names_of(pipeline, query)
    older = {older_name(job_sink(Job("", "", name))) for name in names}
    try:
        spark_id = query_id(checkpoint)
    except (FileNotFoundError, ValueError):
        spark_id = None

    def is_its(owner: Owner) -> bool:
        job = job_of(owner.sink)
        if job is not None:
            return job.query == spark_id or job.job in names
        return owner.sink == spark_id or owner.sink in older

    options = read_sink_options({**pipeline.kafka, **given}, streaming=True)
    end_owned(options, is_its, f"sink {query}", is_ending=False)
