"""`tidelog topic`: create, list, describe, alter, delete."""

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.deleting import delete_each
from tidelog.cli.failure import pairs
from tidelog.cli.options import bootstrap_option, json_option, topic_names
from tidelog.cli.show import show_json, show_table

if TYPE_CHECKING:
    from tidelog.client.admin import Topic


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


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
@bootstrap_option
@json_option
def list_topics(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List the topics.

    \b
    Examples:
      tidelog topic list
      tidelog topic list --json | jq -r .[].topic
    """
    from tidelog.client import Admin

    found = [topic for topic in Admin(bootstrap).topics() if internal or not topic.internal]
    if as_json:
        show_json([{"topic": t.name, "partitions": len(t.partitions), "replication": t.replication} for t in found])
    elif found:
        show_table(
            ["Topic", "Partitions", "Replication"],
            [(t.name, len(t.partitions), t.replication) for t in found],
            right=(1, 2),
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
    found = [admin.topic(name) for name in names]
    if as_json:
        show_json([_plain(topic) for topic in found])
        return
    for topic in found:
        records = sum((p.end or 0) - (p.start or 0) for p in topic.partitions)
        click.secho(topic.name, bold=True, nl=False)
        click.echo(
            f"  {len(topic.partitions)} partitions, replication {topic.replication}, {records:,} records, id {topic.id}"
        )
        for name, value in sorted(topic.configs.items()):
            click.echo(f"  {name}={value}")
        show_table(
            ["Partition", "Leader", "Replicas", "In sync", "First offset", "Next offset"],
            [(p.index, p.leader, _joined(p.replicas), _joined(p.isr), p.start, p.end) for p in topic.partitions],
            right=(0, 1, 4, 5),
        )


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

    wanted = pairs(configs, "--config")
    if partitions is None and not wanted and not unset:
        raise click.UsageError("nothing to change: give --partitions, --config or --unset")
    admin = Admin(bootstrap)
    if wanted or unset:
        admin.alter_configs(name, wanted, unset)
    if partitions is not None:
        admin.add_partitions(name, partitions)
    if as_json:
        show_json({"topic": name, "altered": True})
    else:
        click.echo(f"Altered topic {name}.")


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
            }
            for p in topic.partitions
        ],
    }
