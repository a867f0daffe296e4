"""`tidelog pipeline`: run, check, list, status, reset, replay, redrive. Needs `pip install tidelog[spark]`."""

import sys
from pathlib import Path
from typing import Any

import click

from tidelog.cli.failure import Failure
from tidelog.cli.options import json_option, pipeline_bootstrap_option
from tidelog.cli.pipeline_again import redrive, replay
from tidelog.cli.pipeline_declare import declare
from tidelog.cli.pipeline_reset import reset
from tidelog.cli.pipeline_start import check_start
from tidelog.cli.pipeline_status import list_pipelines, status
from tidelog.cli.pipeline_told import FILE, load_file, spark_told
from tidelog.cli.show import show_json

SIGNALLED = 128
"""What a shell adds to a signal's number."""


@click.group()
def pipeline() -> None:
    """Run data pipelines on Spark: one TOML file each, from topics through SQL to topics and tables."""


for _command in (declare, list_pipelines, status, reset, replay, redrive):
    pipeline.add_command(_command)


@pipeline.command()
@click.argument("file", type=FILE)
@click.option("--once", is_flag=True, help="Stop when everything that is there now is done.")
@click.option("--master", metavar="URL", help="Spark's master: local[2], spark://host:7077, or sc://host for Connect.")
@click.option("--from", "start", metavar="WHERE", help="Where a first run starts: earliest, latest, 2h, or a time.")
@pipeline_bootstrap_option
def run(file: Path, once: bool, master: str | None, start: str | None, bootstrap: str | None) -> None:
    """Run a pipeline until it is stopped (Ctrl-C). It goes on where it stopped, and loses and repeats nothing.

    Its exit code is 0 when it was done or was stopped, and 1 when it failed; what should have come to its end (--once)
    and was stopped before ends with 130 (Ctrl-C) or 143 (SIGTERM), and with 3 where all is done but for records behind
    a transaction that stood open all the while.

    \b
    Examples:
      tidelog pipeline run orders.toml
      tidelog pipeline run orders.toml --once
      tidelog pipeline run orders.toml --from 2026-01-31T12:00 --master spark://host:7077
    """
    made = load_file(file, bootstrap)
    if start is not None:
        check_start(start)
    with spark_told():
        from tidelog.spark.pipeline.run.runner import run_at
        from tidelog.spark.pipeline.run.stop_signals import Stop

        stop = Stop()
        try:
            done = run_at(master, made, once=once, start=start, tell=click.echo, stop=stop)
        except KeyboardInterrupt:
            done = False
    if done:
        click.echo(f"{made.name} is done.")
        return
    click.echo(f"{made.name} stopped; run it again to go on from there.", err=True)
    if once or not made.streams:
        sys.exit(SIGNALLED + (stop.number or 2))


@pipeline.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--no-spark", is_flag=True, help="Only what the file shows by itself: no topics, columns or SQL.")
@pipeline_bootstrap_option
@json_option
def check(files: tuple[Path, ...], no_spark: bool, bootstrap: str | None, as_json: bool) -> None:
    """Check pipelines before they run: keys, topics, columns and SQL; each problem with its line.

    \b
    Examples:
      tidelog pipeline check orders.toml
      tidelog pipeline check pipelines/*.toml --no-spark
    """
    reports: dict[str, Any] = {}
    wrong: list[Failure] = []
    for file in files:
        try:
            reports[str(file)] = _checked(file, bootstrap, no_spark)
        except Failure as failure:
            wrong.append(failure)
            reports[str(file)] = {"problems": failure.message.splitlines()}
            if not as_json:
                failure.show()
            continue
        if not as_json:
            click.echo(f"{file}: {reports[str(file)]['pipeline']} is fine.")
            for name, columns in reports[str(file)]["tables"].items():
                click.echo(f"  {name}: {', '.join(columns)}")
    decoders = {each["decoder"] for each in reports.values() if each.get("decoder")}
    if as_json:
        show_json(reports)
    elif decoders:
        click.echo(f"Records are decoded by {decoders.pop()}.")
    if wrong:
        sys.exit(1)


def _checked(file: Path, bootstrap: str | None, no_spark: bool) -> dict[str, Any]:
    made = load_file(file, bootstrap)
    if no_spark:
        return {"pipeline": made.name, "tables": {}, "decoder": ""}
    with spark_told():
        from tidelog.spark.pipeline.run.runner import check as look
        from tidelog.spark.pipeline.run.runner import check_topics, session

        check_topics(made)  # before Spark starts, which takes a while
        tables = look(made, session(made, "local[1]", log=False))
    return {"pipeline": made.name, "tables": tables, "decoder": _decoder()}


def _decoder() -> str:
    from tidelog.spark.native import described

    description = described()
    slow = description.startswith("plain")
    return (
        "plain Python, which is slow: a C compiler makes it 30 times as fast" if slow else f"code that is {description}"
    )
