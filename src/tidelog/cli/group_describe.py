"""What `tidelog group describe` shows of groups, once or again and again."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from tidelog.cli.group_tables import behind, group_to_json, member_rows, notes, progress_rows
from tidelog.cli.show import show_json, show_table
from tidelog.env.log_lines import printable

if TYPE_CHECKING:
    from tidelog.client.groups import Group
    from tidelog.client.lag import Progress


def show_groups(groups: Sequence["Group"], progress: Sequence[Sequence["Progress"]], *, as_json: bool) -> None:
    from tidelog.client.lag import Lag

    lags = [Lag.of(of_group) for of_group in progress]
    if as_json:
        show_json([group_to_json(*each) for each in zip(groups, progress, lags, strict=True)])
        return
    for group, of_group, lag in zip(groups, progress, lags, strict=True):
        count = len(group.members)
        click.secho(printable(group.name), bold=True, nl=False)
        click.echo(
            f"  {group.state}, {group.type}{f' ({printable(group.assignor)})' if group.assignor else ''}, "
            f"{count} member{'' if count == 1 else 's'}, coordinator {group.coordinator}"
        )
        for line in (behind(lag, len(of_group)), *notes(of_group, lag)):
            click.echo(f"  {line}")
        if group.members:
            show_table(["Member", "Client", "Host", "Instance", "Partitions"], member_rows(group))
        if of_group:
            headings = ["Topic", "Partition", "Committed", "End", "Lag", "Behind", "Member"]
            show_table(headings, progress_rows(group, of_group), right=(1, 2, 3, 4, 5))


def show_again(show: Callable[[], None], every_s: float, *, clear: bool) -> None:
    """Until Ctrl-C; on a terminal each time in place of the last."""
    try:
        while True:
            if clear and sys.stdout.isatty():
                click.clear()
            show()
            sys.stdout.flush()
            time.sleep(every_s)
    except KeyboardInterrupt:
        return
