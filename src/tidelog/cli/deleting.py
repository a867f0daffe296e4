"""Deleting by name, for the commands that do: asked for on a terminal, told one by one."""

import sys
from collections.abc import Callable, Sequence

import click

from tidelog.cli.show import show_json


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal, and end where the answer is no; a script is taken at its word."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True)


def delete_each(
    kind: str,
    names: Sequence[str],
    question: str,
    connect: Callable[[], Callable[[str], object]],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """`connect` gives what deletes one of them: nobody is asked for anything before the question was answered."""
    confirm(question, yes=yes)
    delete = connect()
    for name in names:
        delete(name)
        if not as_json:
            click.echo(f"Deleted {kind} {name}.")
    if as_json:
        show_json({"deleted": list(names)})
