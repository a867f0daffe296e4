"""Where a pipeline, or a sink of it, starts: as a source's `from` has it, looked at before anything begins."""

from datetime import datetime

import click


def check_start(text: str) -> None:
    """BadParameter where it is none."""
    from tidelog.client.start import Start

    if text in ("earliest", "latest"):
        return
    try:
        kind = Start.parse(text, datetime.now().astimezone()).kind
    except ValueError:
        kind = None
    if kind != "time":
        raise click.BadParameter(f"{text!r}: write earliest, latest, 2h or 2026-01-31T12:00", param_hint="--from")
