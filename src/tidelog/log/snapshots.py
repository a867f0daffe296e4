"""Which producer snapshots are in a log's folder: one at the base of each segment, and one at the recovery point."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tidelog.env.disk import Disk
    from tidelog.log.folder import PartitionFolder


class Snapshots:
    """Their offsets, rising."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._offsets = tuple(sorted(offsets))

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets)

    def __contains__(self, offset: int) -> bool:
        return offset in self._offsets

    @property
    def newest(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    def newest_up_to(self, offset: int) -> int:
        """The newest that ends at `offset` or before; -1 where none does."""
        return max((known for known in self._offsets if known <= offset), default=-1)

    def older(self) -> tuple[int, ...]:
        """All but the newest."""
        return self._offsets[:-1]

    def written(self, offsets: Iterable[int], stale: Collection[int]) -> None:
        """These were written, and the `stale` ones removed."""
        self._offsets = tuple(sorted({*self._offsets, *offsets}.difference(stale)))

    def forget(self, offsets: Collection[int]) -> None:
        """Their files are gone, or go."""
        self._offsets = tuple(known for known in self._offsets if known not in offsets)

    def cut(self, disk: Disk, folder: PartitionFolder, offset: int) -> bool:
        """Those above `offset` go at once, files and all; whether there were any."""
        kept = tuple(known for known in self._offsets if known <= offset)
        going, self._offsets = self._offsets[len(kept) :], kept
        for known in going:
            with suppress(FileNotFoundError):
                disk.remove(folder.snapshot_path(known))
        return bool(going)
