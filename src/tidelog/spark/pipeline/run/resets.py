"""Which queries of a pipeline were made to begin anew, and where: kept in its state, beside the checkpoints.

A query that begins anew counts its micro-batches from 0 again. So what it writes from then on goes by another name,
and is not taken for a repetition of what it wrote before.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelog.spark.checkpoint import last_finished
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.source.progress import write_file

FOLDER = "resets"


@dataclass(frozen=True, slots=True)
class Reset:
    """How often a query was reset, and where it begins since the last time: by the file's `from` where that isn't said.

    Its number is its name among files: where it began is kept apart from where it began before, and from where others
    of the pipeline did.
    """

    number: int = 0
    start: str | None = None


def checkpoints_of(pipeline: Pipeline) -> Path:
    """The folder with those of all queries."""
    return pipeline.state / "checkpoints"


def checkpoint_of(pipeline: Pipeline, query: str) -> Path:
    return checkpoints_of(pipeline) / query


def last_reset(pipeline: Pipeline, query: str) -> Reset:
    try:
        return Reset(**json.loads(_file(pipeline, query).read_text()))
    except FileNotFoundError:
        return Reset()


def note_reset(pipeline: Pipeline, query: str, start: str | None) -> Reset:
    """From now on the query begins anew."""
    made = Reset(last_reset(pipeline, query).number + 1, start)
    file = _file(pipeline, query)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, json.dumps(asdict(made)), durable=True)
    return made


def beginning(pipeline: Pipeline, query: str) -> Reset | None:
    """The reset after which a query has finished no micro-batch yet: it begins where that says."""
    made = last_reset(pipeline, query)
    begun = last_finished(checkpoint_of(pipeline, query)) is not None
    return made if made.number and not begun else None


def writes_as(pipeline: Pipeline, query: str) -> str:
    """The name by which what a query writes is known to be a repetition."""
    return names_of(pipeline, query)[-1]


def names_of(pipeline: Pipeline, query: str) -> list[str]:
    """All that it had, the one of now last. No two queries share one: no sink is called `copied:1`."""
    first = f"{pipeline.state_id}-{query}"
    return [first, *(f"{first}:{number + 1}" for number in range(last_reset(pipeline, query).number))]


def _file(pipeline: Pipeline, query: str) -> Path:
    return pipeline.state / FOLDER / f"{query}.json"
