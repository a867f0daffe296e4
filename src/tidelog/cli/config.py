"""`tidelog config`: the settings of topics, brokers, groups and loggers, shown and changed."""

from typing import TYPE_CHECKING, cast

import click

from tidelog.cli.failure import pairs
from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.show import show_json, show_table

if TYPE_CHECKING:
    from tidelog.client.configs import Kind

KINDS = click.Choice(["topic", "broker", "group", "logger"])


@click.group()
def config() -> None:
    """Show and change settings of topics, brokers, groups and loggers.

    \b
    Examples:
      tidelog config get topic orders
      tidelog config set topic orders retention.ms=86400000
      tidelog config get broker 1 --all
    """


@config.command()
@click.argument("kind", type=KINDS, metavar="topic|broker|group|logger")
@click.argument("name", required=False, metavar="[NAME]")
@click.argument("settings", nargs=-1, metavar="[SETTING]...")
@click.option("--all", "-a", "every", is_flag=True, help="Also those that have their default.")
@bootstrap_option
@json_option
def get(kind: str, name: str | None, settings: tuple[str, ...], every: bool, bootstrap: str, as_json: bool) -> None:
    """Show settings, and where each comes from: those that are not at their default, all, or the named ones.

    NAME is a topic, a group, or the id of a broker (the first one's by default; `all` for what was set for all brokers
    while they run). Beside its settings a broker tells what it knows of itself, such as tidelog.version.

    \b
    Examples:
      tidelog config get topic orders
      tidelog config get topic orders retention.ms
      tidelog config get broker 1 --all
      tidelog config get logger
    """
    from tidelog.client.configs import describe, unknown_setting

    whose, entries = describe(bootstrap, cast("Kind", kind), name)
    known = {entry.name: entry for entry in entries}
    for setting in settings:
        if setting not in known:
            raise unknown_setting(cast("Kind", kind), setting, known)
    shown = [known[each] for each in settings] or [each for each in entries if every or not each.is_default]
    if as_json:
        show_json(
            [
                {"setting": each.name, "value": each.value, "from": each.source, "read_only": each.read_only}
                for each in shown
            ]
        )
    elif shown:
        show_table(
            ["Setting", "Value", "From"],
            [(each.name, "(not shown)" if each.sensitive else each.value, each.source) for each in shown],
        )
    else:
        click.echo(f"All settings of {kind} {whose or 'all'} are defaults; --all shows them.", err=True)


@config.command("set")
@click.argument("kind", type=KINDS, metavar="topic|broker|group|logger")
@click.argument("name")
@click.argument("values", nargs=-1, metavar="[SETTING=VALUE]...")
@click.option("--unset", "-u", multiple=True, metavar="SETTING", help="Take a setting back to its default.")
@click.option("--dry-run", is_flag=True, help="Only check.")
@bootstrap_option
@json_option
def set_(
    kind: str,
    name: str,
    values: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Change settings while the broker runs.

    NAME is a topic, a group, or the id of a broker (`all`: all brokers). The levels of loggers (TRACE, DEBUG, INFO,
    WARN, ERROR) hold until the broker restarts, everything else stays.

    \b
    Examples:
      tidelog config set topic orders retention.ms=86400000
      tidelog config set topic orders --unset retention.ms
      tidelog config set broker all log.retention.ms=604800000
      tidelog config set group billing consumer.session.timeout.ms=60000
      tidelog config set logger 1 tidelog.requests=DEBUG
    """
    from tidelog.client.configs import alter

    wanted = pairs(values, "SETTING=VALUE:")
    if not wanted and not unset:
        raise click.UsageError("nothing to change: give SETTING=VALUE, or --unset")
    alter(bootstrap, cast("Kind", kind), name, wanted, unset, dry_run=dry_run)
    if as_json:
        show_json({"kind": kind, "name": name, "set": wanted, "unset": list(unset), "changed": not dry_run})
    else:
        click.echo(f"{kind} {name} could be changed so." if dry_run else f"Changed {kind} {name}.")
