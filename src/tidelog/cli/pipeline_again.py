"""`tidelog pipeline replay` and `redrive`: records once more."""

from pathlib import Path

import click

from tidelog.cli.options import bootstrap_option, json_option, start_of, topic_names
from tidelog.cli.pipeline_told import brokers_told, need_spark
from tidelog.cli.show import show_json

BEGINNING = "beginning"


@click.command()
@click.argument("to", shell_complete=topic_names)
@click.option("--topic", "-t", metavar="TOPIC", help="Records of this topic.", shell_complete=topic_names)
@click.option("--table", type=click.Path(exists=True, path_type=Path), help="Rows of this Parquet folder, as JSON.")
@click.option("--from", "start", default=BEGINNING, metavar="WHERE", help="An offset, 2h, or a time; the beginning.")
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

    Records of a topic get a header tidelog.replayed that says where they stood, so that what came twice can be told.

    \b
    Examples:
      tidelog pipeline replay orders-again --topic orders --from 2h
      tidelog pipeline replay orders-again --topic orders --partition 0 --from 100 --until 200
      tidelog pipeline replay customers --table lake/customers --key id
    """
    if (topic is None) == (table is None):
        raise click.UsageError("give one of --topic and --table: what to send")
    given = {"--from": start != BEGINNING, "--until": until is not None, "--partition": bool(partitions)}
    needless = [flag for flag, is_given in given.items() if is_given] if topic is None else ["--key"] if key else []
    if needless:
        raise click.UsageError(f"{needless[0]} is for {'--table' if topic else '--topic'}: leave it out")
    if table is not None:
        need_spark("what reads Parquet files (pyarrow)")
    from tidelog.spark.pipeline import replay

    def tell(count: int) -> None:
        click.echo(f"{count:,} records sent", err=True)

    with brokers_told():
        if table is not None:
            count = replay.replay_table(bootstrap, table, to, key, tell)
        else:
            begin, end = start_of(start, "--from"), None if until is None else start_of(until, "--until")
            count = replay.replay_topic(bootstrap, topic or "", to, begin, end, list(partitions) or None, tell)
    click.echo(f"Sent {count} records to {to}.")


@click.command()
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

    with brokers_told():
        sent = sending(bootstrap, topic, to, limit, dry_run=dry_run)
    if as_json:
        show_json({"sent": sent, "dry_run": dry_run})
        return
    for target, count in sorted(sent.items()):
        click.echo(f"{'Would send' if dry_run else 'Sent'} {count} to {target}.")
    if not sent:
        click.echo(f"No dead letters in {topic} that were not sent already.", err=True)
