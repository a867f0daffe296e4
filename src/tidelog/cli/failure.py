"""Exceptions as a person reads them: what happened, and what to do next."""

import errno
import os
import sys
from collections.abc import Iterable
from typing import IO, Any

import click

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""What writing to an output tells, without a file's name."""


class Failure(click.ClickException):
    """An error that ends the command: one line, and, where there is one, a second with what to do next."""

    def __init__(self, message: str, hint: str | None = None, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code  # pyright: ignore[reportAttributeAccessIssue]

    def show(self, file: IO[Any] | None = None) -> None:
        click.secho("Error: ", fg="red", nl=False, err=True, file=file)
        click.echo(self.message, err=True, file=file)
        if self.hint:
            click.echo(f"       {self.hint}", err=True, file=file)


def explain(error: Exception) -> Failure | None:
    """The Failure for an error that is not ours to mend; None for a bug, which should show its traceback."""
    from tidelog.client.errors import ClientError  # here: only a failure pays for loading the client
    from tidelog.config.setting import ConfigError

    if isinstance(error, ConfigError):
        return Failure(error.message)
    if isinstance(error, OSError) and error.filename is not None:
        return Failure(f"{error.filename}: {error.strerror}")
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        forget_output()
        return Failure(f"cannot write the output: {error.strerror}")
    if isinstance(error, ClientError):
        return Failure(error.message, error.hint)
    return None


def forget_output() -> None:
    """Python writes what is left of it once more at its end, which would fail again, and be told by a traceback."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends


def pairs(given: Iterable[str], flag: str) -> dict[str, str]:
    """NAME=VALUE flags as a dict."""
    values: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{flag} {pair}: expected NAME=VALUE")
        values[name] = value
    return values
