"""What of a log isn't on stable storage yet, apart from the end of the segment that is written.

A segment that was sealed waits twice: for a sync of its batches (by the group commit, or the flush), and for a
flush, which saves its indexes and the producer snapshot at the next one's base. New files wait for a sync of their
folder. Nobody else writes any of this: the group commit and the flush get values, and tell what came of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.log.segment import Segment


class ToSync(NamedTuple):
    """What a sync of the log has to do beyond the segment that is written."""

    sealed: tuple[Segment, ...]
    names: bool
    """Files were made in its folder."""
    folder: bool
    """The folder itself was."""


class ToFlush(NamedTuple):
    """What a flush of the log has to do beyond the segment that is written."""

    unsynced: tuple[Segment, ...]
    unsaved: tuple[tuple[Segment, bytes], ...]
    """With the producer snapshot at the next segment's base; empty: it isn't known."""
    folder: bool


class Unsynced:
    """Of one log. `dirty`: something was written since the last flush began. `flushing`: one is under way. `requested`:
    somebody waits for a sync that hasn't begun."""

    __slots__ = ("_folder", "_names", "_unsaved", "_unsynced", "dirty", "flushing", "requested")

    def __init__(self, *, names: bool = False, folder: bool = False) -> None:
        self.dirty = False
        self.flushing = False
        self.requested = False
        self._names = names
        self._folder = folder
        self._unsynced: tuple[Segment, ...] = ()
        self._unsaved: tuple[tuple[Segment, bytes], ...] = ()

    def __bool__(self) -> bool:
        """Whether a failed sync of everything may have lost something of it."""
        return self.dirty or self.flushing or bool(self._unsynced)

    @property
    def naming(self) -> bool:
        """Whether its next sync has to do with folders."""
        return self._names or self._folder

    @property
    def has_sealed(self) -> bool:
        """Whether a sealed segment waits for a sync."""
        return bool(self._unsynced)

    @property
    def parts(self) -> int:
        """How many files and folders its next sync has to do with."""
        return 1 + len(self._unsynced) + self._names + 2 * self._folder

    @property
    def bases(self) -> set[int]:
        """Base offsets of the sealed segments that wait for something."""
        return {segment.base for segment in self._unsynced}.union(segment.base for segment, _ in self._unsaved)

    # -- what is written

    def wrote(self) -> bool:
        """Something was written; whether it is the first since the last flush began."""
        first, self.dirty = not self.dirty, True
        return first

    def add_names(self) -> None:
        """Files were made, renamed or removed in its folder."""
        self._names = True

    def add_folder(self) -> None:
        """Its folder was made, and says whose it is."""
        self._names = self._folder = True

    def seal(self, segment: Segment, snapshot: bytes) -> None:
        """Nothing is written to the segment any more. `snapshot`: the producers as of its end; empty: not known yet."""
        self._unsynced = (*self._unsynced, segment)
        self._unsaved = (*self._unsaved, (segment, snapshot))

    def unseal(self, segment: Segment) -> None:
        """The segment is the last one again."""
        self.forget((segment.base,))

    def know_producers(self, segment: Segment, snapshot: bytes) -> None:
        """The producers as of the end of a sealed segment of which they weren't known."""
        self._unsaved = tuple(
            (other, snapshot if other is segment and not known else known) for other, known in self._unsaved
        )

    def forget(self, bases: Collection[int]) -> None:
        """These segments are no longer part of the log."""
        self._unsynced = tuple(segment for segment in self._unsynced if segment.base not in bases)
        self._unsaved = tuple(pair for pair in self._unsaved if pair[0].base not in bases)

    # -- the group commit

    def request(self) -> None:
        """Somebody waits for a sync."""
        self.requested = True

    def begin_journaling(self) -> None:
        """What was written goes to the journal; the sync of its files comes later."""
        self.requested = False

    def begin_sync(self) -> ToSync:
        """What is to be synced. What is written from now on waits for the next one."""
        self.requested = False
        found = ToSync(self._unsynced, self._names, self._folder)
        self._names = self._folder = False
        return found

    def synced(self, sealed: Collection[Segment]) -> None:
        self._unsynced = tuple(segment for segment in self._unsynced if segment not in sealed)

    def sync_not_tried(self) -> None:
        """Which of the names are durable isn't known: all are synced again."""
        self._names = self._folder = True

    # -- the flush

    def begin_flush(self) -> ToFlush:
        self.flushing, self.dirty = True, False
        return ToFlush(self._unsynced, self._unsaved, self._folder)

    def flushed(self, sealed: Collection[Segment]) -> None:
        self.forget({segment.base for segment in sealed})

    def end_flush(self) -> None:
        """However it ended."""
        self.flushing = False

    def check_invariants(self) -> None:
        bases = [segment.base for segment in self._unsynced]
        assert bases == sorted(set(bases)), f"unsynced segments {bases}"
        assert set(bases) <= {segment.base for segment, _ in self._unsaved}, "a segment is synced before it is saved"
