"""`tidelog pipeline`: run, check, list, status, replay, redrive. Needs `pip install tidelog[spark]`."""

import signal
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.failure import Failure
from tidelog.cli.options import bootstrap_option, json_option, topic_names
from tidelog.cli.pipeline_declare import declare
from tidelog.cli.show import show_json, show_table

if TYPE_CHECKING:
    from tidelog.client.start import Start
    from tidelog.spark.pipeline.model import Pipeline

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FRESH_S = 1.0


@click.group()
def pipeline() -> None:
    """Run data pipelines on Spark: one TOML file each, from topics through SQL to topics and tables."""


pipeline.add_command(declare)


@pipeline.command()
@click.argument("file", type=FILE)
@click.option("--once", is_flag=True, help="Stop when everything that is there now is done.")
@click.option("--master", metavar="URL", help="Spark's master: local[2], spark://host:7077, or sc://host for Connect.")
@click.option("--from", "start", metavar="WHERE", help="Where a first run starts: earliest, latest, 2h, or a time.")
@click.option("--bootstrap", "-b", metavar="HOST:PORT", help="Brokers, instead of those in the file.")
def run(file: Path, once: bool, master: str | None, start: str | None, bootstrap: str | None) -> None:
    """Run a pipeline until it is stopped (Ctrl-C). It goes on where it stopped, and loses and repeats nothing.

    \b
    Examples:
      tidelog pipeline run orders.toml
      tidelog pipeline run orders.toml --once
      tidelog pipeline run orders.toml --from 2026-01-31T12:00 --master spark://host:7077
    """
    made = _load(file, bootstrap)
    from tidelog.spark.pipeline import run as running

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    with _told():
        running.check_topics(made)  # before Spark starts, which takes a while
        spark = running.session(made, master)
        signal.signal(signal.SIGTERM, stop)  # what service managers send is Ctrl-C to us
        try:
            running.run(made, spark, once=once, start=start, tell=click.echo)
        except KeyboardInterrupt:
            click.echo(f"{made.name} stopped; run it again to go on from there.", err=True)
            return
        finally:
            spark.stop()
    click.echo(f"{made.name} is done.")


@pipeline.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--no-spark", is_flag=True, help="Only what the file shows by itself: no topics, columns or SQL.")
@click.option("--bootstrap", "-b", metavar="HOST:PORT", help="Brokers, instead of those in the file.")
@json_option
def check(files: tuple[Path, ...], no_spark: bool, bootstrap: str | None, as_json: bool) -> None:
    """Check pipelines before they run: keys, topics, columns and SQL; each problem with its line.

    \b
    Examples:
      tidelog pipeline check orders.toml
      tidelog pipeline check pipelines/*.toml --no-spark
    """
    told: dict[str, Any] = {}
    decoder = ""
    for file in files:
        made = _load(file, bootstrap)
        tables: dict[str, list[str]] = {}
        if not no_spark:
            from tidelog.spark.pipeline import run as running

            with _told():
                running.check_topics(made)
                spark = running.session(made, "local[1]", log=False)
                tables = running.check(made, spark)
            decoder = _decoder()
        told[str(file)] = {"pipeline": made.name, "tables": tables, "decoder": decoder}
        if not as_json:
            click.echo(f"{file}: {made.name} is fine.")
            for name, columns in tables.items():
                click.echo(f"  {name}: {', '.join(columns)}")
    if decoder and not as_json:
        click.echo(f"Records are decoded by {decoder}.")
    if as_json:
        show_json(told)


@pipeline.command("list")
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def list_pipelines(folder: Path, as_json: bool) -> None:
    """List the pipelines in a folder and how they are.

    \b
    Examples:
      tidelog pipeline list
      tidelog pipeline list pipelines --json
    """
    from tidelog.spark.pipeline.status import read_status

    rows: list[tuple[str, str, str]] = []
    for file in sorted(folder.glob("*.toml")):
        if "[source" not in file.read_text(errors="replace"):
            continue
        try:
            made = _load(file, None)
        except Failure as failure:
            rows.append((file.name, "", f"broken: {failure.message.splitlines()[0]}"))
            continue
        status = read_status(made.state)
        rows.append((file.name, made.name, status["outcome"] if status else "never run"))
    if as_json:
        show_json([{"file": file, "pipeline": name, "state": state} for file, name, state in rows])
    elif rows:
        show_table(["File", "Pipeline", "State"], rows)
    else:
        click.echo(f"No pipelines in {folder}. docs/pipelines shows how to write one.", err=True)


@pipeline.command()
@click.argument("file", type=FILE)
@click.option("--follow", "-f", is_flag=True, help="Show it again every second, until it ends.")
@json_option
def status(file: Path, follow: bool, as_json: bool) -> None:
    """Show how a pipeline does: rows a second, lag, time of the last batch.

    \b
    Examples:
      tidelog pipeline status orders.toml
      tidelog pipeline status orders.toml --follow
    """
    from tidelog.spark.pipeline.status import read_status

    made = _load(file, None)
    while True:
        told = read_status(made.state)
        if told is None:
            raise Failure(f"{made.name} never ran", f"start it with `tidelog pipeline run {file}`")
        if as_json:
            show_json(told)
        else:
            if follow and sys.stdout.isatty():
                click.clear()
            _show_status(made.name, told)
        if not follow or told["outcome"] != "running":
            return
        time.sleep(FRESH_S)


@pipeline.command()
@click.argument("to", shell_complete=topic_names)
@click.option("--topic", "-t", metavar="TOPIC", help="Records of this topic.", shell_complete=topic_names)
@click.option("--table", type=click.Path(exists=True, path_type=Path), help="Rows of this Parquet folder, as JSON.")
@click.option("--from", "start", default="beginning", metavar="WHERE", help="An offset, 2h, or a time; the beginning.")
@click.option("--until", metavar="WHERE", help="An offset, 2h, or a time, not included; the end.")
@click.option("--partition", "-p", "partitions", multiple=True, type=int, metavar="N", help="Only this partition.")
@click.option("--key", metavar="COLUMN", help="The column of a table that becomes the key.")
@bootstrap_option
def replay(
    to: str,
    topic: str | None,
    table: Path | None,
    start: str,
    until: str | None,
    partitions: tuple[int, ...],
    key: str | None,
    bootstrap: str,
) -> None:
    """Send a stretch of a topic, or a table, into a topic once more. One that is cut short leaves what it sent.

    \b
    Examples:
      tidelog pipeline replay orders-again --topic orders --from 2h
      tidelog pipeline replay orders-again --topic orders --partition 0 --from 100 --until 200
      tidelog pipeline replay customers --table lake/customers --key id
    """
    from tidelog.spark.pipeline import again

    if (topic is None) == (table is None):
        raise click.UsageError("give one of --topic and --table: what to send")

    def tell(count: int) -> None:
        click.echo(f"{count:,} records sent", err=True)

    if table is not None:
        count = again.replay_table(bootstrap, table, to, key, tell)
    else:
        begin, end = _place(start, "--from"), None if until is None else _place(until, "--until")
        count = again.replay_topic(bootstrap, topic or "", to, begin, end, list(partitions) or None, tell)
    click.echo(f"Sent {count} records to {to}.")


@pipeline.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--to", metavar="TOPIC", help="Send all here, instead of to where each came from.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@bootstrap_option
@json_option
def redrive(topic: str, to: str | None, limit: int | None, dry_run: bool, bootstrap: str, as_json: bool) -> None:
    """Send dead letters back to the partitions they came from, after a fix; each once.

    What is sent and how far it came are one transaction, under the group redrive-TOPIC: stopped or killed, the next
    call goes on from there. Readers of committed records see each letter once.

    \b
    Examples:
      tidelog pipeline redrive orders-dead --dry-run
      tidelog pipeline redrive orders-dead --limit 100
    """
    from tidelog.spark.pipeline.redrive import redrive as sending

    sent = sending(bootstrap, topic, to, limit, dry_run=dry_run)
    if as_json:
        show_json({"sent": sent, "dry_run": dry_run})
        return
    for target, count in sorted(sent.items()):
        click.echo(f"{'Would send' if dry_run else 'Sent'} {count} to {target}.")
    if not sent:
        click.echo(f"No dead letters in {topic} that were not sent already.", err=True)


def _decoder() -> str:
    from tidelog.spark.native import described

    found = described()
    slow = found.startswith("plain")
    return "plain Python, which is slow: a C compiler makes it 30 times as fast" if slow else f"code that is {found}"


def _load(file: Path, bootstrap: str | None) -> "Pipeline":
    from tidelog.spark.pipeline.check import PipelineError
    from tidelog.spark.pipeline.model import load

    try:
        return load(file, bootstrap)
    except PipelineError as error:
        raise Failure(str(error)) from None


class _told:
    """What a person can do something about, said without a traceback."""

    def __enter__(self) -> None:
        from importlib.util import find_spec

        if find_spec("pyspark") is None:
            raise Failure("pipelines run on Spark, which is not installed", "pip install 'tidelog[spark]'")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from tidelog.rpc.errors import Unreachable
        from tidelog.spark.pipeline.check import PipelineError
        from tidelog.spark.pipeline.run import NoSpark

        if isinstance(error, PipelineError | NoSpark | Unreachable):
            raise Failure(str(error)) from None
        if isinstance(error, Py4JError | PySparkException):
            thrown: Any = getattr(error, "java_exception", None)
            text = str(thrown if thrown is not None else error).strip().splitlines()[0]
            raise Failure(
                f"Spark can't do it: {text}", "`tidelog pipeline check` says more; so does Spark's log"
            ) from None
        if isinstance(error, RuntimeError) and not isinstance(error, NotImplementedError):
            raise Failure(str(error), "run it again to go on from there") from None


def _place(text: str, flag: str) -> "Start":
    from tidelog.client.start import Start

    try:
        return Start.parse(text, datetime.now().astimezone())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=flag) from None


def _show_status(name: str, told: dict[str, Any]) -> None:
    age_s = time.time() - told["at"]
    click.secho(name, bold=True, nl=False)
    click.echo(f"  {told['outcome']}, {age_s:.0f} s ago")
    rows: list[tuple[Any, ...]] = []
    for sink, query in told["queries"].items():
        if "error" in query:
            click.secho(f"  {sink}: {query['error']}", fg="red")
        if "batch" in query:
            rate = query["rows_per_s"] or 0.0
            rows.append((sink, query["batch"], query["rows"], f"{rate:,.0f}", query["lag"], query["batch_ms"]))
    for query, each in told.get("left_out", {}).items():
        click.secho(f"  {query}: {each['told']}", fg="yellow")
    if rows:
        show_table(["Sink", "Batch", "Rows", "Rows/s", "Lag", "Batch ms"], rows, right=(1, 2, 3, 4, 5))
