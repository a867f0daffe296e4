"""Why nothing comes: `tidelog consume` says where it waits behind an open transaction, and ends with its reader."""

import select
import shlex
import sys
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from tidelog.cli.failure import Failure
from tidelog.cli.show import counted
from tidelog.env.log_lines import printable

if TYPE_CHECKING:
    from tidelog.client.errors import ClientError
    from tidelog.client.offline import Offline

LOOK_AFTER_S = 1.0
LOOK_EVERY_S = 10.0


class Waits:
    """Told by the reading loop when nothing came, and when it is over."""

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[str],
        partitions: Collection[int],
        *,
        at_end: bool,
        committed_only: bool,
    ) -> None:
        """`partitions`: only these are read; none: all."""
        self._bootstrap = bootstrap
        self._topics = topics
        self._partitions = partitions
        self._at_end = at_end
        self._committed_only = committed_only
        self._look_at = time.monotonic() + LOOK_AFTER_S
        self._told: set[tuple[str, int, int]] = set()
        self._offline = 0

    def idle(self) -> None:
        _raise_if_nobody_reads()
        if not self._at_end and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_EVERY_S
            self._tell("waits at offset {} for {}")

    def ended(self, *, by_count: bool) -> None:
        """All that may be shown was; a count that was reached is an end of its own."""
        if self._at_end and not by_count:
            self._tell("ends at offset {} for now, where {} begins")
        if self._offline:
            is_one = self._offline == 1
            raise Failure(
                f"{counted(self._offline, 'partition')} {'was' if is_one else 'were'} not read, being offline",
                "`tidelog status` says what to do",
            )

    def offline(self, each: "Offline") -> None:
        """A partition that can't be read: the others are."""
        self._offline += 1
        click.echo(printable(each.message), err=True)

    def _tell(self, words: str) -> None:
        from tidelog.client.errors import ClientError
        from tidelog.client.transactions import Transactions

        if not self._committed_only:
            return
        try:
            with Transactions(self._bootstrap) as transactions:
                transactions_open = transactions.open_transactions(self._topics)
        except ClientError:
            return  # what can't be asked isn't told; records are still waited for
        for each in sorted(
            transactions_open, key=lambda each: (each.topic, each.partition, each.first_offset), reverse=True
        ):
            at = (each.topic, each.partition, each.first_offset)
            if at in self._told or (self._partitions and each.partition not in self._partitions):
                continue
            self._told.add(at)
            whose = "an open transaction that nobody ends"
            hint = f"`tidelog txn hanging {each.topic}`"
            if each.name:
                whose = f"the open transaction of {printable(each.name)}"
                hint = f"`tidelog txn describe {printable(shlex.quote(each.name))}`"
            click.echo(
                f"{each.topic}-{each.partition} {words.format(each.first_offset, whose)}: {hint} tells more, "
                "--uncommitted shows what is in it",
                err=True,
            )


def waits_for(why: "ClientError") -> None:
    click.echo(f"waits: {printable(why.message)}", err=True)
    if why.hint:
        click.echo(f"       {why.hint}", err=True)


def _raise_if_nobody_reads() -> None:
    """Without a record to write nobody would notice that `| head` is gone."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    poll = select.poll()
    poll.register(descriptor, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError
