"""`tidelog status`: whether all is well, what is not, and the command that helps."""

import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.show import counted, human_bytes, show_json
from tidelog.env.log_lines import printable

if TYPE_CHECKING:
    from tidelog.client.advice import Problem
    from tidelog.client.health import BrokerHealth, Health
    from tidelog.client.log_dirs import LogDir

UNREACHABLE = 1
PROBLEMS = 3
UNKNOWN = "unknown"


@click.command()
@click.option(
    "--watch",
    "-w",
    type=click.FloatRange(0.1),
    is_flag=False,
    flag_value=5.0,
    metavar="[SECONDS]",
    help="Look again and again, every 5 seconds by default, until Ctrl-C.",
)
@bootstrap_option
@json_option
def status(watch: float | None, bootstrap: str, as_json: bool) -> None:
    """Show on one screen how a broker is: version, disk, partitions, transactions, groups; and what to do.

    The exit code is 0 when all is well, 3 when something needs you, 1 when no broker answers. What a broker doesn't
    tell is called unknown.

    \b
    Examples:
      tidelog status
      tidelog status --watch
      tidelog status --json | jq -r '.problems[].what'
      tidelog status --bootstrap queue.example.org:9092 || page-somebody
    """
    if watch is None:
        raise SystemExit(_look(bootstrap, as_json))
    try:
        while True:
            if not as_json:
                click.clear()
            _look(bootstrap, as_json)
            time.sleep(watch)
    except KeyboardInterrupt:
        raise SystemExit(0) from None


def _look(bootstrap: str, as_json: bool) -> int:
    """Look once, and show it; the exit code."""
    from tidelog.client.advice import Problem, notes, problems
    from tidelog.client.errors import ClientError, no_broker
    from tidelog.client.health import health

    try:
        cluster = health(bootstrap)
    except ClientError as error:
        nobody = error.message == no_broker(bootstrap).message
        problem = Problem("unreachable", error.message, error.hint or "", ("tidelog serve",) if nobody else ())
        if as_json:
            show_json({"healthy": False, "bootstrap": bootstrap, "problems": [_problem(problem)]})
        else:
            _show_problems([problem])
        return UNREACHABLE
    wrong, worth_a_look = problems(cluster), notes(cluster)
    if as_json:
        show_json(_plain(cluster, wrong, worth_a_look))
    else:
        _show(cluster)
        _show_problems(wrong)
        for number, note in enumerate(worth_a_look):
            _text("" if number else "\n", "Note: ", note)
    return PROBLEMS if wrong else 0


def _show(cluster: "Health") -> None:
    for broker in cluster.brokers:
        version = broker.facts.get("tidelog.version")
        click.secho(f"{'Tidelog ' + version if version else 'A broker of unknown version'}", bold=True, nl=False)
        click.echo(f"  broker {broker.id} at {broker.address}, cluster {cluster.cluster_id or UNKNOWN}")
        _line("up since", _up_since(broker))
        _line("last recovery", _recovery(broker))
        for folder in broker.folders or ():
            _line("disk", _disk(broker, folder))
        if broker.folders is None:
            _line("disk", UNKNOWN)
    sizes = [size for broker in cluster.brokers for folder in broker.folders or () for size in folder.sizes.values()]
    _line(
        "topics",
        f"{cluster.topics:,}, with {counted(cluster.partitions, 'partition')} and {human_bytes(sum(sizes))}",
    )
    _line(
        "offline",
        f"{len(cluster.offline):,} of {counted(cluster.partitions, 'partition')}",
        wrong=bool(cluster.offline),
    )
    _line(
        "out of sync",
        f"{len(cluster.lagging):,} of {counted(cluster.partitions, 'partition')}",
        wrong=bool(cluster.lagging),
    )
    _line("transactions", _transactions(cluster), wrong=bool(cluster.hanging))
    _line("groups", UNKNOWN if cluster.groups_in_all is None else f"{cluster.groups_in_all:,}")


def _transactions(cluster: "Health") -> str:
    if cluster.open_transactions is None or cluster.hanging is None:
        return UNKNOWN
    if not cluster.open_transactions:
        return "none is open"
    count = len({each.producer_id for each in cluster.open_transactions})
    oldest_ms = min(each.since_ms for each in cluster.open_transactions)
    summary = f"{count:,} {'is' if count == 1 else 'are'} open, the oldest for "
    summary += _duration((cluster.asked_ms - oldest_ms) / 1000)
    return f"{summary}; {len(cluster.hanging):,} hang" if cluster.hanging else f"{summary}; none hangs"


def _line(name: str, text: str, *, wrong: bool = False) -> None:
    click.echo(f"  {name:<14}", nl=False)
    click.secho(printable(text), fg="red" if wrong else None)


def _up_since(broker: "BrokerHealth") -> str:
    text = broker.facts.get("tidelog.start.time.ms")
    if not text:
        return UNKNOWN
    from datetime import datetime

    began = datetime.fromtimestamp(int(text) / 1000)
    return f"{began.isoformat(sep=' ', timespec='seconds')}, for {_duration(time.time() - began.timestamp())}"


def _duration(seconds: float) -> str:
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86_400
    if days >= 2:
        return f"{days:.0f} days"
    return (
        f"{hours:.0f} hours" if hours >= 2 else f"{minutes:.0f} minutes" if minutes >= 2 else f"{seconds:.0f} seconds"
    )


def _recovery(broker: "BrokerHealth") -> str:
    facts = broker.facts
    if "tidelog.recovery.clean" not in facts:
        return UNKNOWN
    if facts["tidelog.recovery.clean"] == "true":
        return "none was needed, the last stop was clean"
    checked, cut = int(facts["tidelog.recovery.partitions"]), int(facts["tidelog.recovery.cut.partitions"])
    took_s = int(facts["tidelog.recovery.time.ms"]) / 1000
    summary = f"after a crash, {counted(checked, 'partition')} checked in {took_s:.1f} s"
    if facts["tidelog.recovery.done"] != "true":
        summary += " so far"
    if not cut:
        summary += ", nothing was cut"
    else:
        worst = facts["tidelog.recovery.cut.worst"]
        summary += f", {int(facts['tidelog.recovery.cut.bytes']):,} bytes cut off {cut:,} of them: {worst}"
    restored = int(facts.get("tidelog.recovery.journal.records", 0))
    if not restored:
        return summary
    partitions = counted(int(facts["tidelog.recovery.journal.partitions"]), "partition")
    return f"{summary}; {counted(restored, 'record')} of {partitions} came back from the journal"


def _disk(broker: "BrokerHealth", folder: "LogDir") -> str:
    if folder.error is not None or folder.usable_bytes is None or folder.total_bytes is None:
        return f"{folder.path}: {folder.error or 'free space unknown'}"
    rate = broker.taken_per_day(folder)
    if rate is None:
        lasts = "days left: unknown"
    elif rate <= 0:
        lasts = "it doesn't fill up"
    else:
        lasts = f"{folder.usable_bytes / rate:,.0f} days left at {human_bytes(rate)} a day"
    return f"{folder.path}: {human_bytes(folder.usable_bytes)} of {human_bytes(folder.total_bytes)} free, {lasts}"


def _show_problems(wrong: "list[Problem]") -> None:
    if not wrong:
        click.secho("\nAll is well.", fg="green")
        return
    click.secho(f"\n{len(wrong)} problem{'' if len(wrong) == 1 else 's'}:", fg="red", bold=True)
    for number, problem in enumerate(wrong, 1):
        _text("", f"{number:>3}. ", problem.what)
        _text("", "     To do: ", problem.advice)
        for command in problem.commands:
            click.echo(f"       {printable(command)}")


def _text(before: str, label: str, text: str) -> None:
    """On a terminal no word is broken; other programs get a line each."""
    line = label + printable(text)
    if sys.stdout.isatty():
        import textwrap

        width = max(shutil.get_terminal_size().columns, 40)
        below = " " * min(len(label), 5)
        line = textwrap.fill(line, width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False)
    click.echo(before + line)


def _problem(problem: "Problem") -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "what": problem.what,
        "advice": problem.advice,
        "commands": list(problem.commands),
    }


def _plain(cluster: "Health", wrong: "list[Problem]", worth_a_look: list[str]) -> dict[str, Any]:
    return {
        "healthy": not wrong,
        "bootstrap": cluster.bootstrap,
        "cluster_id": cluster.cluster_id,
        "brokers": [_plain_broker(broker) for broker in cluster.brokers],
        "topics": cluster.topics,
        "partitions": cluster.partitions,
        "offline": [
            {"topic": each.topic, "partition": each.partition, "reason": each.reason} for each in cluster.offline
        ],
        "out_of_sync": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "replicas": each.replicas,
                "in_sync": each.in_sync,
                "below_min": each.below_min,
            }
            for each in cluster.lagging
        ],
        "open_transactions": None
        if cluster.open_transactions is None
        else len({each.producer_id for each in cluster.open_transactions}),
        "hanging_transactions": None if cluster.hanging is None else len(cluster.hanging),
        "groups": cluster.groups_in_all,
        "problems": [_problem(each) for each in wrong],
        "notes": worth_a_look,
    }


def _plain_broker(broker: "BrokerHealth") -> dict[str, Any]:
    from tidelog.client.advice import days_left

    facts = broker.facts
    clean = facts.get("tidelog.recovery.clean")
    recovery = {
        "clean": clean == "true",
        "done": facts.get("tidelog.recovery.done") == "true",
        "partitions": int(facts.get("tidelog.recovery.partitions", 0)),
        "time_ms": int(facts.get("tidelog.recovery.time.ms", 0)),
        "cut_partitions": int(facts.get("tidelog.recovery.cut.partitions", 0)),
        "cut_bytes": int(facts.get("tidelog.recovery.cut.bytes", 0)),
        "journal_partitions": int(facts.get("tidelog.recovery.journal.partitions", 0)),
        "journal_records": int(facts.get("tidelog.recovery.journal.records", 0)),
    }
    return {
        "id": broker.id,
        "address": broker.address,
        "version": facts.get("tidelog.version"),
        "start_time_ms": int(facts["tidelog.start.time.ms"]) if "tidelog.start.time.ms" in facts else None,
        "recovery": None if clean is None else recovery,
        "folders": None
        if broker.folders is None
        else [
            {
                "path": folder.path,
                "error": folder.error,
                "total_bytes": folder.total_bytes,
                "usable_bytes": folder.usable_bytes,
                "taken_bytes_per_day": broker.taken_per_day(folder),
                "days_left": days_left(broker, folder),
            }
            for folder in broker.folders
        ],
    }
