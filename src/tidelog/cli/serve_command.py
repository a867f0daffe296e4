"""`tidelog serve` for click: its help, its completion, and its complaints about flags it doesn't know."""

from typing import Any

import click

from tidelog.cli.serve_flags import FLAGS, Flag, Given

HELP = """Run a broker.

It prints one line when it is ready, naming its address, and stops cleanly on SIGTERM or Ctrl-C; SIGHUP is logged and
does nothing else. Settings have Kafka's names; flags win over TIDELOG_* variables (TIDELOG_LOG_SEGMENT_BYTES is
log.segment.bytes) over the file of --config.

\b
Examples:
  tidelog serve
  tidelog serve --data /var/lib/tidelog --listen 0.0.0.0:9092 \\
      --set advertised.listeners=PLAINTEXT://queue.example.org:9092
  tidelog serve --set log.segment.bytes=104857600 --set tidelog.durability=os
  tidelog serve --config tidelog.toml
  tidelog serve --config server.properties
  tidelog serve --config tidelog.toml --check
"""


def _run(log_format: str | None, check: bool, **values: Any) -> None:
    if check:
        from tidelog.cli.serve_check import check as check_start

        raise SystemExit(check_start(Given(**values)))
    from tidelog.cli.serve import run

    raise SystemExit(run(Given(**values), log_format))


def _option(flag: Flag) -> click.Option:
    if not flag.value_name:
        return click.Option([flag.name], is_flag=True, help=flag.help, hidden=flag.hidden)
    kind = {"DIR": click.Path(file_okay=False, readable=False), "FILE": click.Path(dir_okay=False)}.get(flag.value_name)
    return click.Option([flag.name], type=kind, metavar=flag.value_name, multiple=flag.many, help=flag.help)


OTHERS = [
    click.Option(["--check"], is_flag=True, help="Only say whether a start would work: settings, folder, port."),
    click.Option(["--log-format"], metavar="text|json", help="How lines on stderr are written.  [default: text]"),
]
"""Flags that a plain start does without: they are read by click only."""

serve = click.Command("serve", callback=_run, help=HELP, params=[*map(_option, FLAGS), *OTHERS])
