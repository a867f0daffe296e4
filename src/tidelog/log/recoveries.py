"""What opening the logs has come to since the start: which were checked after a crash, and what was cut off them.

One log that is cut is told as it happens. Of thousands only the first are, and all of them together once the last one
was opened, with those that lost most: so that the log of a broker is as short as it is useful.
"""

from __future__ import annotations

import logging
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.log.opening import Opening
    from tidelog.log.recovery import Recovered
    from tidelog.wire.topic_partition import TopicPartition

TOLD_MAX = 20
"""Messages of openings that are told one by one."""
WORST = 5

_logger = logging.getLogger("tidelog.log")


class Cut(NamedTuple):
    """What recovery took off the end of a log. `records`: in whole batches behind the first bad one; `restored`: those
    that came back from the journal in its place."""

    place: str
    offset: int
    bytes: int
    records: int
    restored: int = 0

    def __str__(self) -> str:
        whole = f" with {self.records:,} whole records" if self.records else ""
        back = f", where {_counted(self.restored, 'record')} came back from the journal" if self.restored else ""
        return f"{self.place}, {self.bytes:,} bytes{whole} from offset {self.offset:,} on{back}"


class Recoveries:
    """Of one store. `clean`: whether all its folders were marked clean by the last stop; `done`: whether all logs that
    were on disk at the start were opened."""

    def __init__(self) -> None:
        self.clean = True
        self.unopened = 0
        self.done = False
        self.seconds = 0.0
        self.cuts: list[Cut] = []
        self.restored: dict[TopicPartition, int] = {}
        self.must_be_whole: Callable[[TopicPartition], bool] = lambda _: False
        """Whether it was claimed of a partition that nothing of it was lost: what others were told of it counts."""
        self._checked: set[TopicPartition] = set()
        self._told = 0

    @property
    def checked(self) -> int:
        """How many partitions; one that is tried again is the same."""
        return len(self._checked)

    @property
    def cut_bytes(self) -> int:
        return sum(cut.bytes for cut in self.cuts)

    @property
    def restored_records(self) -> int:
        """How many came back from the journal."""
        return sum(self.restored.values())

    def begin(self, unopened: int, *, clean: bool) -> None:
        """So many logs are on disk."""
        self.unopened, self.clean = unopened, clean

    def add(self, opening: Opening) -> None:
        """A log was opened, or couldn't be."""
        if not opening.log_folder.clean:
            self._checked.add(opening.log_folder.key)
            self.seconds += opening.seconds
        if opening.restored:
            self.restored[opening.log_folder.key] = opening.restored
        if opening.cut is not None:
            self.cuts.append(opening.cut)
        for message in opening.reports:
            self._told += 1
            _logger.log(logging.WARNING if self._told <= TOLD_MAX else logging.DEBUG, "%s", message)

    def shortfall(self, opening: Opening, found: Recovered) -> str | None:
        """Why a log isn't served that was opened, since it was claimed to be whole and isn't: its end is below what the
        journal had of it, which was acknowledged. None where it may be served."""
        known = [one.end for one in opening.log_folder.journal if one.topic_id == opening.topic_id]
        short = bool(known) and max(known) > found.ends.log_end
        if not short or not self.must_be_whole(opening.log_folder.key):
            return None
        return (
            f"{opening.log_folder.path} ends at offset {found.ends.log_end}, but records up to {max(known)} were made "
            "durable: others have them, and after the next start it is made whole from theirs"
        )

    def finish(self, offline: int) -> None:
        """All logs were opened; `offline` of them can't be served."""
        if not self.done and not self.clean:
            level = logging.WARNING if self.cuts or offline else logging.INFO
            _logger.log(level, "recovery is done: %s", self.summary(offline))
        self.done = True

    def worst(self) -> list[Cut]:
        """Those that lost most, the worst one first."""
        return nlargest(WORST, self.cuts, key=lambda cut: (cut.bytes, cut.place))

    def summary(self, offline: int) -> str:
        cuts = len(self.cuts)
        told = f"{_partitions(self.checked)} checked in {self.seconds:.1f} s"
        if not cuts:
            told += ", nothing was cut"
        else:
            worst = "; ".join(map(str, self.worst()))
            most = ", most off these" if cuts > WORST else ""
            told += f", {cuts:,} of {self.checked:,} partitions cut, {self.cut_bytes:,} bytes in all{most}: {worst}"
        if self.restored:
            records, partitions = _counted(self.restored_records, "record"), _partitions(len(self.restored))
            told += f"; {records} of {partitions} came back from the journal"
        return f"{told}; {_partitions(offline)} offline, `tidelog status` says why" if offline else told


def _partitions(count: int) -> str:
    return _counted(count, "partition")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
