"""`tidelog group`: list, describe, reset, delete consumer groups."""

from typing import TYPE_CHECKING

import click

from tidelog.cli.deleting import confirm, delete_each
from tidelog.cli.group_describe import show_again, show_groups
from tidelog.cli.group_tables import change_rows, change_to_json
from tidelog.cli.options import bootstrap_option, group_names, json_option
from tidelog.cli.show import show_json, show_table

if TYPE_CHECKING:
    from tidelog.client.groups import Shift
    from tidelog.client.start import Start

TO = (
    "earliest, latest, an offset (42), the last of each partition (-10), a time ago (15m, 2h, 1d) or a time "
    "(2026-01-31T12:00)"
)

NO_GROUPS = "No groups yet. A consumer makes one when it subscribes with a group.id."


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups.

    \b
    Examples:
      tidelog group list
      tidelog group describe billing
      tidelog group reset billing --to 2h --dry-run
    """


@group.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(["stable", "rebalancing", "empty", "dead"]),
    help="Only these.",
)
@click.option(
    "--type", "types", multiple=True, type=click.Choice(["classic", "consumer"]), help="Only groups of this protocol."
)
@click.option("--all", "show_all", is_flag=True, help="Also those in which Spark sinks keep how far they are.")
@bootstrap_option
@json_option
def list_groups(states: tuple[str, ...], types: tuple[str, ...], show_all: bool, bootstrap: str, as_json: bool) -> None:
    """List the groups: their state, protocol and number of members.

    \b
    Examples:
      tidelog group list
      tidelog group list --state empty --json | jq -r .[].group
      tidelog group list --type consumer
    """
    from tidelog.client.groups import Groups
    from tidelog.rpc.groups import OF_SPARK_SINKS

    unknown = _tell_unknown(bootstrap)
    there = Groups(bootstrap).all()
    every = [each for each in there if show_all or not each.name.startswith(OF_SPARK_SINKS)]
    shown = [each for each in every if (not states or each.state in states) and (not types or each.type in types)]
    if as_json:
        show_json([{"group": g.name, "state": g.state, "type": g.type, "members": len(g.members)} for g in shown])
    elif shown:
        rows = [(g.name, g.state, g.type, len(g.members)) for g in shown]
        show_table(["Group", "State", "Type", "Members"], rows, right=(3,))
    elif every:
        click.echo(f"None of the {len(every)} groups is like that.", err=True)
    elif not unknown:
        click.echo(NO_GROUPS, err=True)
    if not as_json:
        _tell_hidden(len(there) - len(every))


def _tell_unknown(bootstrap: str) -> bool:
    """Whether there may be groups that nobody can tell of now."""
    from tidelog.client.cluster import connected
    from tidelog.client.health import OFFSETS_TOPIC
    from tidelog.client.offline import offline_partitions

    with connected(bootstrap, "list the groups") as cluster:
        offline = offline_partitions(cluster, [OFFSETS_TOPIC])
    for each in offline:
        click.echo(f"{each.place} is offline: groups that it keeps are unknown; `tidelog status` says more", err=True)
    return bool(offline)


def _tell_hidden(count: int) -> None:
    if count:
        click.echo(
            f"{count} {'is' if count == 1 else 'are'} kept by Spark sinks, not shown: --all shows them.", err=True
        )


@group.command()
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=group_names)
@click.option(
    "--all", "show_all", is_flag=True, help="Without names: also those in which Spark sinks keep how far they are."
)
@click.option("--watch", "-w", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", type=click.FloatRange(0.1), default=2.0, show_default=True, metavar="SECONDS",
              help="How often, with --watch.")  # fmt: skip
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], show_all: bool, watch: bool, every: float, bootstrap: str, as_json: bool) -> None:
    """Show members, what each has, committed offsets, and how far behind a group is: in messages and in time.

    Without a name all groups are shown.

    \b
    Examples:
      tidelog group describe billing
      tidelog group describe
      tidelog group describe billing --watch --every 5
      tidelog group describe billing --json | jq .[0].lag
    """
    from tidelog.client.groups import Groups
    from tidelog.rpc.groups import OF_SPARK_SINKS

    groups = Groups(bootstrap)

    def show() -> None:
        described = [groups.group(name) for name in names] if names else groups.all()
        shown = [each for each in described if names or show_all or not each.name.startswith(OF_SPARK_SINKS)]
        show_groups(shown, groups.progress(shown), as_json=as_json)
        if not as_json:
            _tell_hidden(len(described) - len(shown))
            if not described and not _tell_unknown(bootstrap):
                click.echo(NO_GROUPS, err=True)

    if watch:
        show_again(show, every, clear=not as_json)
    else:
        show()


@group.command()
@click.argument("name", shell_complete=group_names)
@click.option("--to", metavar="WHERE", help=f"Where to go on: {TO}.")
@click.option("--shift", type=int, metavar="N", help="So many messages on from where it is; back where negative.")
@click.option("--topic", "-t", "topics", multiple=True, metavar="TOPIC[:P,P...]",
              help="Only this topic, or these partitions of it; everything that was committed otherwise.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@bootstrap_option
@json_option
def reset(
    name: str,
    to: str | None,
    shift: int | None,
    topics: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Set where a group goes on. Its consumers must be stopped.

    Offsets that a partition doesn't hold (any more, or yet) become the nearest that it does.

    \b
    Examples:
      tidelog group reset billing --to earliest --dry-run
      tidelog group reset billing --to 2h --topic orders
      tidelog group reset billing --to 1200 --topic orders:0,3
      tidelog group reset billing --shift -100 --yes
    """
    from tidelog.client.groups import Groups

    where = _where(to, shift)
    groups = Groups(bootstrap)
    changes = groups.plan(name, where, [_topic(text) for text in topics])
    outcome = {"group": name, "changed": not dry_run, "offsets": [change_to_json(change) for change in changes]}
    if not as_json:
        show_table(["Topic", "Partition", "Old", "New", "Change"], change_rows(changes), right=(1, 2, 3, 4))
    if not dry_run:
        confirm(f"Set group {name} to these offsets?", yes=yes)
        groups.reset(name, changes)
    if as_json:
        show_json(outcome)
    elif dry_run:
        click.echo("Nothing was changed: this was a dry run.", err=True)
    else:
        click.echo(f"Reset group {name}.")


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=group_names)
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete groups and their committed offsets. Their consumers must be stopped.

    \b
    Examples:
      tidelog group delete billing
      tidelog group delete billing mailing --yes
    """
    from tidelog.client.groups import Groups

    question = f"Delete {', '.join(names)}, with the memory of what was consumed?"
    delete_each("group", names, question, lambda: Groups(bootstrap).delete, yes=yes, as_json=as_json)


def _where(to: str | None, shift: int | None) -> "Start | Shift":
    from datetime import datetime

    from tidelog.client.groups import Shift
    from tidelog.client.start import Start

    if (to is None) == (shift is None):
        raise click.UsageError("give one of --to and --shift: where to go on, or how far from where it is")
    if shift is not None:
        return Shift(shift)
    try:
        return Start.parse(to or "", datetime.now().astimezone())
    except ValueError:
        raise click.BadParameter(f"{to!r} is no place to go on from: use {TO}", param_hint="--to") from None


def _topic(text: str) -> tuple[str, list[int]]:
    name, colon, numbers = text.partition(":")
    try:
        partitions = [int(number) for number in numbers.split(",")] if colon else []
    except ValueError:
        partitions = [-1]
    if not name or any(number < 0 for number in partitions):
        raise click.BadParameter(f"{text!r}: expected a topic, as in orders, or orders:0,3", param_hint="--topic")
    return name, partitions
