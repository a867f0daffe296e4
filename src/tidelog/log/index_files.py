"""Index files of sealed segments that were built again: whole and durable under another name before they take theirs.

So no power loss leaves half of one below the recovery point, where nobody would read the segment again.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tidelog.log.rewriting import FULL_DISK, UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Generator

    from tidelog.env.disk import Disk
    from tidelog.env.loop import Loop
    from tidelog.env.promise import Promise
    from tidelog.log.segment import Segment
    from tidelog.log.segments import Segments


class IndexFiles:
    """`loop`: they are synced off it; None: nobody waits, it is done at once."""

    def __init__(self, disk: Disk, loop: Loop | None = None) -> None:
        self._disk = disk
        self._loop = loop
        self._saving: set[str] = set()

    def save(self, segments: Segments, segment: Segment, contents: dict[str, bytes]) -> None:
        """Contents by suffix. Until they have their names, what is there isn't trusted (`segment.indexed`): what can't
        be written is built again by whoever needs it next."""
        stem = segment.stem
        if self._loop is None:
            with suppress_full_disk():
                _write(self._disk, stem, contents)
                self._rename(segment, contents)
        elif stem not in self._saving:
            self._saving.add(stem)
            learnt = segment.learnt

            def saved(done: Promise[None]) -> None:
                self._saving.discard(stem)
                # A deletion, a cleaning or a truncation may have been faster: others' files may have the names now.
                same = segment.learnt == learnt and segment.offsets is None
                if done.error is None and same and any(segment is other for other in segments):
                    with suppress(FileNotFoundError):  # the topic was deleted
                        self._rename(segment, contents)

            self._loop.run_blocking(lambda: _write(self._disk, stem, contents)).on_done(saved)

    def _rename(self, segment: Segment, contents: dict[str, bytes]) -> None:
        for suffix in contents:
            self._disk.rename(segment.stem + suffix + UNFINISHED, segment.stem + suffix)
        segment.indexed = True


@contextmanager
def suppress_full_disk() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise


def _write(disk: Disk, stem: str, contents: dict[str, bytes]) -> None:
    for suffix, data in contents.items():
        file = disk.open(stem + suffix + UNFINISHED, create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
