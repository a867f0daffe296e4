"""`tidelog format`: a node's folders for a chosen cluster, before its first start. `tidelog serve` alone needs none."""

from contextlib import closing
from typing import Any

import click

from tidelog.cli.serve_flags import FLAGS, Given

SETTINGS = tuple(flag for flag in FLAGS if flag.name in ("--data", "--set", "--config"))

HELP = """Format a node's data folders for a cluster.

`tidelog serve` on an empty folder makes a cluster of one by itself. This command is for a cluster id of your choice,
for several controllers that begin together, and for a node that is to join. It takes the settings that the node is
started with: node.id, log.dirs, metadata.log.dir, listeners. Nothing that is formatted is ever formatted again.

\b
Examples:
  tidelog format --data /var/lib/tidelog
  tidelog format --config server.properties --cluster-id 4L6g3nShT-eMCtK--X86sw --standalone
  tidelog format --config node1.toml --cluster-id 4L6g3nShT-eMCtK--X86sw --initial-controllers \\
      1@host1:9093:JEXY6aqzQY-32P5TStzaFg,2@host2:9093:MvDxzVmcRsaTz33bUuRU6A,3@host3:9093:07R5amHmR32VDA6jHkGbTA
  tidelog format --config node4.toml --cluster-id 4L6g3nShT-eMCtK--X86sw --no-initial-controllers
"""


def _run(
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    ignore_formatted: bool,
    **values: Any,
) -> None:
    import os

    from tidelog.cli.settings import gather
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.setting import ConfigError
    from tidelog.controller.activation import default_bootstrap
    from tidelog.env.real import real_environment
    from tidelog.env.real_loop import RealLoop
    from tidelog.raft.folder import FolderError, controller_endpoint
    from tidelog.raft.format import Begins, check_cluster_id, format_node
    from tidelog.raft.initial_controllers import parse_initial_controllers
    from tidelog.wire.records.metadata import encode_record

    if sum((standalone, bool(initial_controllers), no_initial_controllers)) > 1:
        raise click.UsageError("--standalone, --initial-controllers and --no-initial-controllers exclude each other.")
    try:
        settings, _ = gather(Given(**values), os.environ)
        if cluster_id is not None:
            check_cluster_id(cluster_id)
            settings["cluster.id"] = cluster_id
        config = BrokerConfig.parse(settings)
        listener = controller_endpoint(config).name
        initial = parse_initial_controllers(initial_controllers, listener) if initial_controllers else None
        bootstrap = [encode_record(record, 0) for record in default_bootstrap()]
        with closing(RealLoop()) as loop:
            done = format_node(
                real_environment(loop),
                config,
                bootstrap,
                begins=Begins(standalone, initial, no_initial_controllers),
                ignore_formatted=ignore_formatted,
            )
    except (ConfigError, FolderError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    learns = "" if config.static_voters else "it is to join: it learns the controllers from those that it is told of"
    _tell(done.identities, done.new, None if done.voters is None else sorted(done.voters.ids), learns)


def _tell(identities: Any, new: list[str], voters: list[int] | None, learns: str) -> None:
    from tidelog.wire.uuids import uuid_text

    first = next(iter(identities.values()))
    click.echo(f"cluster {first.cluster_id}, node {first.node_id}")
    for folder, identity in identities.items():
        was = "" if folder in new else ", formatted before and left as it was"
        click.echo(f"{folder}: directory id {uuid_text(identity.directory_id)}{was}")
    if voters is not None:
        click.echo(f"controllers that it begins with: {', '.join(map(str, voters))}")
    elif learns and new:
        click.echo(learns)


OPTIONS = [
    click.Option(["--cluster-id"], metavar="ID", help="The cluster it belongs to.  [default: a new one]"),
    click.Option(["--standalone"], is_flag=True, help="The cluster begins with this node as its only controller."),
    click.Option(
        ["--initial-controllers"],
        metavar="LIST",
        help="The voters that the cluster begins with, ID@HOST:PORT:DIRECTORY-ID, separated by commas; the same for "
        "each.  [default: this node alone, if it is told of no others]",
    ),
    click.Option(["--no-initial-controllers"], is_flag=True, help="The cluster is there already: this node joins it."),
    click.Option(["--ignore-formatted"], is_flag=True, help="Leave folders that are formatted as they are."),
]


def _setting(flag: Any) -> click.Option:
    return click.Option([flag.name], metavar=flag.value_name, multiple=flag.many, help=flag.help)


format = click.Command("format", callback=_run, help=HELP, params=[*map(_setting, SETTINGS), *OPTIONS])
