"""`tidelog pipeline list` and `status`: how pipelines are. Needs neither Spark nor a broker."""

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from tidelog.cli.failure import Failure
from tidelog.cli.options import json_option
from tidelog.cli.pipeline_told import FILE, load_file
from tidelog.cli.show import human_bytes, show_json, show_table

FRESH_S = 1.0
SILENT_S = 60.0
"""A run writes its status twice a second; one that has not for so long hangs, or its machine does."""


@click.command("list")
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def list_pipelines(folder: Path, as_json: bool) -> None:
    """List the pipelines in a folder and how they are.

    \b
    Examples:
      tidelog pipeline list
      tidelog pipeline list pipelines --json
    """
    from tidelog.spark.pipeline.run.status import read_status

    rows: list[tuple[str, str, str]] = []
    for file in sorted(folder.glob("*.toml")):
        if "[source" not in file.read_text(errors="replace"):
            continue
        try:
            made = load_file(file, None)
        except Failure as failure:
            rows.append((file.name, "", f"broken: {failure.message.splitlines()[0]}"))
            continue
        report = read_status(made.state)
        rows.append((file.name, made.name, _state(report) if report else "never run"))
    if as_json:
        show_json([{"file": file, "pipeline": name, "state": state} for file, name, state in rows])
    elif rows:
        show_table(["File", "Pipeline", "State"], rows)
    else:
        click.echo(f"There are no pipelines in {folder.resolve()}: docs/pipelines shows how to write one.", err=True)


@click.command()
@click.argument("file", type=FILE)
@click.option("--follow", "-f", is_flag=True, help="Show it again every second, until it ends.")
@json_option
def status(file: Path, follow: bool, as_json: bool) -> None:
    """Show how a pipeline does: rows and bytes of the last batch, rows a second, lag, time it took.

    \b
    Examples:
      tidelog pipeline status orders.toml
      tidelog pipeline status orders.toml --follow
    """
    from tidelog.spark.pipeline.run.status import ALIVE, read_status

    made = load_file(file, None)
    while True:
        report = read_status(made.state)
        if report is None:
            raise Failure(f"{made.name} never ran", f"start it with `tidelog pipeline run {file}`")
        if as_json:
            show_json(report)
        else:
            if follow and sys.stdout.isatty():
                click.clear()
            _show(made.name, report)
        if not follow or report["outcome"] not in ALIVE:
            return
        try:
            time.sleep(FRESH_S)
        except KeyboardInterrupt:  # who watches has seen enough
            return


def _state(report: dict[str, Any]) -> str:
    """One word, and why it failed."""
    return f"{report['outcome']}: {report['why']}" if "why" in report else str(report["outcome"])


def _show(name: str, report: dict[str, Any]) -> None:
    from tidelog.spark.pipeline.run.status import ALIVE

    age_s = time.time() - report["at"]
    click.secho(name, bold=True, nl=False)
    if report["outcome"] not in ALIVE:
        click.echo(f"  {report['outcome']}, {_age(age_s)} ago")
    else:
        click.echo(f"  {report['outcome']}" + (f", and silent for {_age(age_s)}" if age_s > SILENT_S else ""))
    if "why" in report:
        click.secho(f"  {report['why']}", fg="red")
    if "away" in report and report["outcome"] in ALIVE:
        click.secho(f"  No broker answered for {_age(time.time() - report['away'])}: it waits for them.", fg="yellow")
    if report["outcome"] == "gone":
        click.secho("  Its process ended without a word: run it again to go on from its checkpoint.", fg="red")
    rows: list[tuple[Any, ...]] = []
    for sink, query in report["queries"].items():
        if "error" in query and query["error"] not in report.get("why", ""):
            click.secho(f"  {sink}: {query['error']}", fg="red")
        if "batch" in query:
            rows.append((sink, *_figures(query, report["at"])))
        elif report["outcome"] in ALIVE:
            click.secho(f"  {sink}: in its first batch: {query['message']}", dim=True)
    if report.get("held_up"):
        from tidelog.spark.pipeline.run.held_up import Held, words

        click.secho(f"  {words(Held(**each) for each in report['held_up'])}", fg="yellow")
    for query, each in report.get("left_out", {}).items():
        click.secho(f"  {query}: {each['told']}", fg="yellow")
    if rows:
        headings = ["Sink", "Batch", "Rows", "Bytes", "Rows/s", "Lag", "Batch ms", "Begun"]
        show_table(headings, rows, right=range(1, len(headings)))


def _figures(query: dict[str, Any], at: float) -> tuple[str, ...]:
    """Of the last batch; when it began is told in relation to when the status was written."""
    begun = max(0.0, at - datetime.fromisoformat(query["at"]).timestamp()) if "at" in query else 0.0
    return (
        f"{query['batch']}",
        f"{query['rows']:,}",
        human_bytes(query.get("bytes", 0)),
        f"{query['rows_per_s'] or 0.0:,.0f}",
        f"{query['lag']:,}",
        f"{query['batch_ms']}",
        f"{_age(begun)} ago",
    )


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
