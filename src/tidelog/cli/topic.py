"""`tidelog topic`: create, list, describe, alter, trim, delete."""

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.deleting import confirm, delete_each
from tidelog.cli.failure import pairs
from tidelog.cli.options import bootstrap_option, json_option, start_of, topic_names
from tidelog.cli.show import counted, human_bytes, show_json, show_table
from tidelog.env.log_lines import printable

if TYPE_CHECKING:
    from tidelog.client.admin import Partition, Topic, Trim


@click.group()
def topic() -> None:
    """Create, list, describe, alter, trim and delete topics.

    \b
    Examples:
      tidelog topic create orders --partitions 8
      tidelog topic list --by-size
      tidelog topic describe orders
      tidelog topic alter orders --config retention.ms=86400000
    """


@topic.command()
@click.argument("name")
@click.option(
    "--partitions", "-p", type=click.IntRange(1), metavar="N", help="How many; the broker's num.partitions by default."
)
@click.option(
    "--replication", "-r", type=click.IntRange(1), metavar="N", help="Copies of each partition; the broker's default."
)
@click.option(
    "--config", "-c", "configs", multiple=True, metavar="NAME=VALUE", help="A topic setting, by Kafka's name."
)
@click.option("--if-not-exists", is_flag=True, help="Succeed where the topic is there already.")
@bootstrap_option
@json_option
def create(
    name: str,
    partitions: int | None,
    replication: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a topic.

    \b
    Examples:
      tidelog topic create orders
      tidelog topic create orders --partitions 8 --config retention.ms=86400000
      tidelog topic create ticks --config tidelog.storage=memory
    """
    from tidelog.client import Admin, ClientError

    wanted = pairs(configs, "--config")
    created = True
    try:
        Admin(bootstrap).create_topic(name, partitions or -1, replication or -1, wanted)
    except ClientError as error:
        if not (if_not_exists and "TOPIC_ALREADY_EXISTS" in error.message):
            raise
        created = False
    if as_json:
        show_json({"topic": name, "created": created})
    else:
        click.echo(f"Created topic {name}." if created else f"Topic {name} is there already.")


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also the topics that brokers keep for themselves.")
@click.option("--by-size", is_flag=True, help="The largest first.")
@bootstrap_option
@json_option
def list_topics(internal: bool, by_size: bool, bootstrap: str, as_json: bool) -> None:
    """List the topics, with the bytes that they take on disk, all replicas together.

    \b
    Examples:
      tidelog topic list
      tidelog topic list --by-size
      tidelog topic list --json | jq -r .[].topic
    """
    from tidelog.client import Admin

    admin = Admin(bootstrap)
    topics = [topic for topic in admin.topics() if internal or not topic.internal]
    sizes = admin.sizes() or {}
    if by_size:
        topics.sort(key=lambda topic: sizes.get(topic.name, 0), reverse=True)
    if as_json:
        show_json(
            [
                {
                    "topic": t.name,
                    "partitions": len(t.partitions),
                    "replication": t.replication,
                    "bytes": sizes.get(t.name),
                }
                for t in topics
            ]
        )
    elif topics:
        show_table(
            ["Topic", "Partitions", "Replication", "Size"],
            [(t.name, len(t.partitions), t.replication, _size(sizes.get(t.name))) for t in topics],
            right=(1, 2, 3),
        )
    else:
        click.echo("No topics yet. `tidelog topic create NAME` makes one.", err=True)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=topic_names)
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show partitions, offsets and settings of topics.

    \b
    Examples:
      tidelog topic describe orders
      tidelog topic describe orders --json
    """
    from tidelog.client import Admin

    admin = Admin(bootstrap)
    topics = [admin.topic(name) for name in names]
    if as_json:
        show_json([_plain(topic) for topic in topics])
        return
    for topic in topics:
        records = sum((p.end or 0) - (p.start or 0) for p in topic.partitions)
        offline = [p for p in topic.partitions if p.offline is not None]
        known = f"{counted(records, 'record')}{' and those that are offline' if offline else ''}"
        click.secho(topic.name, bold=True, nl=False)
        click.echo(
            f"  {counted(len(topic.partitions), 'partition')}, replication {topic.replication}, {known}, id {topic.id}"
        )
        for name, value in sorted(topic.configs.items()):
            click.echo(f"  {name}={value}")
        show_table(
            ["Partition", "Leader", "Replicas", "In sync", "First offset", "Next offset"],
            [(p.index, p.leader, _joined(p.replicas), _joined(p.isr), *_ends(p)) for p in topic.partitions],
            right=(0, 1, 4, 5),
        )
        for p in offline:
            click.secho(f"  {topic.name}-{p.index} is offline: {printable(p.offline or '')}", fg="red")


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--partitions", "-p", type=click.IntRange(1), metavar="N", help="Grow to this many.")
@click.option("--config", "-c", "configs", multiple=True, metavar="NAME=VALUE", help="Set a topic setting.")
@click.option("--unset", "-u", multiple=True, metavar="NAME", help="Take a topic setting back to its default.")
@bootstrap_option
@json_option
def alter(
    name: str, partitions: int | None, configs: tuple[str, ...], unset: tuple[str, ...], bootstrap: str, as_json: bool
) -> None:
    """Change a topic's settings, or add partitions.

    \b
    Examples:
      tidelog topic alter orders --config retention.ms=3600000
      tidelog topic alter orders --unset retention.ms
      tidelog topic alter orders --partitions 16
    """
    from tidelog.client import Admin
    from tidelog.client.configs import alter as alter_configs

    wanted = pairs(configs, "--config")
    if partitions is None and not wanted and not unset:
        raise click.UsageError("nothing to change: give --partitions, --config or --unset")
    admin = Admin(bootstrap)
    if wanted or unset:
        alter_configs(bootstrap, "topic", name, wanted, unset)
    if partitions is not None:
        admin.add_partitions(name, partitions)
    if as_json:
        show_json({"topic": name, "altered": True})
    else:
        click.echo(f"Altered topic {name}.")


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option(
    "--before",
    required=True,
    metavar="WHERE",
    help="end (all), an offset (42), the last of each partition (-10), a time ago (1d) or a time (2026-01-31T12:00).",
)
@click.option("--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="Only these; repeatable.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@bootstrap_option
@json_option
def trim(name: str, before: str, partitions: tuple[int, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete the first records of a topic: all that are before an offset or a time, or all there are.

    The offsets of what stays don't change. Space is free again when whole segments are below, after the topic's
    file.delete.delay.ms; records of the segment that is written to stay on disk until it is full.

    \b
    Examples:
      tidelog topic trim orders --before 7d
      tidelog topic trim orders --before 2026-01-31T12:00 --partition 0
      tidelog topic trim orders --before end --yes
    """
    from tidelog.client import Admin

    where = start_of(before, "--before")
    admin = Admin(bootstrap)
    plan: list[Trim] = []
    for each in admin.trim_plan(name, where, partitions):
        if each.offline is None:
            plan.append(each)
        else:
            click.echo(f"{name}-{each.partition} is offline, and was left out: {printable(each.offline)}", err=True)
    records = sum(each.records for each in plan)
    if not as_json:
        show_table(
            ["Partition", "First offset", "Then", "Next offset", "Records that go"],
            [(each.partition, each.start, each.new, each.end, f"{each.records:,}") for each in plan],
            right=(0, 1, 2, 3, 4),
        )
    if records:
        confirm(f"Delete {counted(records, 'record')} of {name} for good?", yes=yes)
        admin.trim(name, plan)
    if as_json:
        rows = [{"partition": each.partition, "start": each.new, "deleted": each.records} for each in plan]
        show_json({"topic": name, "deleted": records, "partitions": rows})
    else:
        click.echo(
            f"Deleted {counted(records, 'record')} of {name}." if records else f"{name} has no records before that."
        )


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=topic_names)
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete topics and all their records.

    \b
    Examples:
      tidelog topic delete orders
      tidelog topic delete orders payments --yes
    """
    from tidelog.client import Admin

    question = f"Delete {', '.join(names)} and all records in {'it' if len(names) == 1 else 'them'}?"
    delete_each("topic", names, question, lambda: Admin(bootstrap).delete_topic, yes=yes, as_json=as_json)


def _size(count: int | None) -> str:
    return "unknown" if count is None else human_bytes(count)


def _ends(partition: "Partition") -> tuple[object, object]:
    return ("offline", "offline") if partition.offline is not None else (partition.start, partition.end)


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _plain(topic: "Topic") -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": topic.id,
        "configs": topic.configs,
        "partitions": [
            {
                "partition": p.index,
                "leader": p.leader,
                "replicas": p.replicas,
                "isr": p.isr,
                "start": p.start,
                "end": p.end,
                **({} if p.offline is None else {"offline": p.offline}),
            }
            for p in topic.partitions
        ],
    }
