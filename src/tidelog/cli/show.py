"""Tables for people, JSON for programs."""

import sys
from collections.abc import Iterable, Sequence

import click

from tidelog.env.log_lines import printable

PIPE_COLUMNS = 10_000  # so that nothing is cut or wrapped when another program reads


def show_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False))


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> None:
    """Rows under headings; the columns in `right` hold numbers and are aligned to the right.

    Ids of groups, members and transactions are whatever a client chose: the terminal is told to do nothing by them.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else printable(str(cell)) for cell in row))
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
    console.print(table, crop=sys.stdout.isatty(), soft_wrap=False)


def counted(count: int, noun: str) -> str:
    """1 partition, 1,200 partitions."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def human_bytes(count: float) -> str:
    """1536 -> 1.5 KB; powers of 1024, as Kafka's settings count."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def human_time(timestamp_ms: int) -> str:
    """Local time with milliseconds; `-` for none."""
    if timestamp_ms < 0:
        return "-"
    from datetime import datetime

    return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(sep=" ", timespec="milliseconds")
