"""`tidelog pipeline reset`: a sink forgets its checkpoint and state, and begins anew. Needs no Spark."""

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.failure import Failure
from tidelog.cli.options import json_option, pipeline_bootstrap_option
from tidelog.cli.pipeline_start import check_start
from tidelog.cli.pipeline_told import FILE, brokers_told, load_file
from tidelog.cli.show import show_json

if TYPE_CHECKING:
    from tidelog.spark.pipeline.file.model import Pipeline


@click.command()
@click.argument("file", type=FILE)
@click.option("--sink", "-s", "sinks", multiple=True, required=True, metavar="NAME", help="The sink that begins anew.")
@click.option(
    "--from", "start", metavar="WHERE", help="Where it begins: earliest, latest, 2h, or a time; as in the file."
)
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@pipeline_bootstrap_option
@json_option
def reset(
    file: Path, sinks: tuple[str, ...], start: str | None, yes: bool, bootstrap: str | None, as_json: bool
) -> None:
    """Have a sink begin anew: it forgets how far it read, and what it keeps of rows (sums, windows, joins).

    Needed where a change of the file no longer fits what is kept, which `check` and `run` tell. What the sink wrote
    stays where it is: rows that are read again are written again, beside those that are there. A table that is upserted
    has each key once all the same. The pipeline must be stopped; its other sinks go on where they were.

    \b
    Examples:
      tidelog pipeline reset orders.toml --sink orders-by-minute
      tidelog pipeline reset orders.toml --sink orders-by-minute --from latest --yes
    """
    from tidelog.spark.pipeline.file.check import PipelineError
    from tidelog.spark.pipeline.reset import queries_of
    from tidelog.spark.pipeline.reset import reset as begin_anew

    made = load_file(file, bootstrap)
    if start is not None:
        check_start(start)
    known = queries_of(made)
    for name in sinks:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise Failure(f"{made.name} has no sink {name}", hint)
    if not yes and sys.stdin.isatty():
        for name in sinks:
            click.echo(_meaning(made, name, start))
        click.confirm(f"Reset {', '.join(sinks)}?", abort=True)
    numbers: dict[str, Any] = {}
    with brokers_told():
        try:
            for name in sinks:
                numbers[name] = begin_anew(made, name, start).number
                if not as_json:
                    click.echo(f"Reset {name}: the next run has it begin {_where(made, start)}.")
        except PipelineError as error:
            raise Failure(str(error)) from None
    if as_json:
        show_json({"reset": numbers, "from": start})


def _meaning(pipeline: "Pipeline", name: str, start: str | None) -> str:
    """What is forgotten, and what that does to who reads what was written."""
    from tidelog.spark.pipeline.file.spec import FolderSink, TopicSink, UpsertSink
    from tidelog.spark.pipeline.reset import described

    before = described(pipeline, name)
    kept = " and its state" if before.stateful else ""
    done = (
        "no micro-batch was finished" if before.batches is None else f"{before.batches:,} micro-batches were finished"
    )
    sink = pipeline.sink(name)
    what = f"{name} forgets its checkpoint{kept} ({done}), and begins {_where(pipeline, start)}."
    if isinstance(sink, UpsertSink):
        return f"{what} The table keeps one row a key: rows that come again take the place of themselves."
    where = "where it writes to"
    if isinstance(sink, TopicSink | FolderSink):
        where = f"topic {sink.topic}" if isinstance(sink, TopicSink) else sink.path
    return (
        f"{what} What is in {where} stays there, and rows that are read again are written again: readers have them "
        "twice. To have each once, begin with an empty one, or where nothing was read yet (--from)."
    )


def _where(pipeline: "Pipeline", start: str | None) -> str:
    if start is not None:
        return f"at {start}"
    from tidelog.spark.pipeline.file.spec import TopicSource

    starts = {source.start for source in pipeline.sources.values() if isinstance(source, TopicSource)}
    return f"at {starts.pop()}" if len(starts) == 1 else "where the file says"
