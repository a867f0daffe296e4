"""Flags that several commands share."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tidelog.client.start import Start

F = TypeVar("F", bound=Callable[..., Any])


def _addresses(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """What is no address of a broker is refused before anything is asked."""
    from tidelog.rpc.address import addresses

    if value is not None:
        try:
            addresses(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


def bootstrap_option(command: F) -> F:
    return click.option(
        "--bootstrap",
        "-b",
        envvar="TIDELOG_BOOTSTRAP",
        callback=_addresses,
        default="127.0.0.1:9092",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="A broker to ask first.",
    )(command)


def pipeline_bootstrap_option(command: F) -> F:
    """As a pipeline's file has brokers itself, and goes before the environment."""
    return click.option(
        "--bootstrap",
        "-b",
        callback=_addresses,
        metavar="HOST:PORT",
        help="Brokers, instead of those in the file or TIDELOG_BOOTSTRAP.",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text for people.")(
        command
    )


def start_of(text: str, flag: str) -> "Start":
    """A place in partitions, as a person writes it; BadParameter, with what is allowed, where it is none."""
    from datetime import datetime

    from tidelog.client.start import Start

    try:
        return Start.parse(text, datetime.now().astimezone())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=flag) from None


def topic_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Shell completion: the topics of the broker, or none where nobody answers."""
    from tidelog.client import Admin, ClientError

    try:
        topics = Admin(context.params.get("bootstrap") or "127.0.0.1:9092").topics()
    except ClientError:
        return []
    return [topic.name for topic in topics if topic.name.startswith(incomplete)]


def group_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Shell completion: the groups of the broker, or none where nobody answers."""
    from tidelog.client import ClientError
    from tidelog.client.groups import Groups

    try:
        names = Groups(context.params.get("bootstrap") or "127.0.0.1:9092").names()
    except ClientError:
        return []
    return [name for name in names if name.startswith(incomplete)]
