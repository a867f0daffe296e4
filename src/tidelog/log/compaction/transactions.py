"""Transactions as compaction meets them going through a log: what was aborted goes, a marker when its data is gone.

A marker stays while a batch of its transaction was met in the same pass, an empty one included; an aborted one is
listed in the new transaction index then. When none was met any more it is a marker of nothing, which stays for
`delete.retention.ms` all the same: a reader may be between the data that went and the marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.wire.markers import ABORT, COMMIT

if TYPE_CHECKING:
    from tidelog.log.aborted import Aborted


class Ended(NamedTuple):
    """What a control batch means: `empty` where nothing of its transaction is left, else what the index is told."""

    empty: bool
    aborted: Aborted | None = None


class Transactions:
    """Fed with the batches of a log in their order. `aborted` are those that touch the range that is gone through."""

    __slots__ = ("_aborting", "_coming", "_committing", "_met")

    def __init__(self, aborted: list[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborting: dict[int, Aborted] = {}
        self._committing: set[int] = set()
        self._met: set[int] = set()  # producers with an aborted transaction of which a batch was met

    def _begin_up_to(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[-1].first_offset <= offset:
            entry = coming.pop()
            self._aborting.setdefault(entry.producer_id, entry)

    def data(self, producer_id: int, last_offset: int) -> bool:
        """A transactional batch of records; whether it was aborted."""
        self._begin_up_to(last_offset)
        if producer_id in self._aborting:
            self._met.add(producer_id)
            return True
        self._committing.add(producer_id)
        return False

    def control(self, producer_id: int, last_offset: int, kind: int | None) -> Ended:
        """A control batch; `kind` is None where compaction emptied it before."""
        self._begin_up_to(last_offset)
        if kind == COMMIT:
            met = producer_id in self._committing
            self._committing.discard(producer_id)
            return Ended(not met)
        if kind == ABORT:
            entry = self._aborting.pop(producer_id, None)
            met = producer_id in self._met
            self._met.discard(producer_id)
            return Ended(entry is None or not met, entry if met else None)
        return Ended(kind is None)
