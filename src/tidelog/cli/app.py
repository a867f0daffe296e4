"""The command tree. A command's module is imported when it is used, so that each starts fast."""

import importlib
from typing import Any

import click

from tidelog import __version__

COMMANDS = {
    "serve": "tidelog.cli.serve_command:serve",
    "format": "tidelog.cli.format:format",
    "status": "tidelog.cli.status:status",
    "topic": "tidelog.cli.topic:topic",
    "config": "tidelog.cli.config:config",
    "produce": "tidelog.cli.produce:produce",
    "consume": "tidelog.cli.consume:consume",
    "group": "tidelog.cli.group:group",
    "txn": "tidelog.cli.txn:txn",
    "pipeline": "tidelog.cli.pipeline:pipeline",
    "log": "tidelog.cli.log:log",
    "bench": "tidelog.cli.bench:bench",
    "completion": "tidelog.cli.completion:completion",
}


class LazyGroup(click.Group):
    """A group that knows its commands' names, and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        return getattr(importlib.import_module(module), name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what a user can do something about is said in one or two lines, without a traceback."""
        try:
            return super().invoke(ctx)
        except click.ClickException:
            raise
        except BrokenPipeError:  # `| head` has seen enough: no failure
            from tidelog.cli.failure import forget_output

            forget_output()
            raise SystemExit(0) from None
        except Exception as error:
            from tidelog.cli.failure import explain

            failure = explain(error)
            if failure is None:
                raise
            raise failure from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="tidelog %(version)s")
def app() -> None:
    """A message queue that speaks the Apache Kafka protocol.

    \b
    Start here:
      tidelog serve
      tidelog topic create greetings
      echo hello | tidelog produce greetings
      tidelog consume greetings

    Each command has its own --help with examples.
    """
