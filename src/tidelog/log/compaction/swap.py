"""Putting a cleaned segment in the place of the old ones: in one step, on the loop.

The new files are durable already, under names that end in `.cleaned`. They are renamed to `.swap`, the old ones to
`.deleted`, then the new ones to their names. A journal keeps the order of these changes, and a start after a crash
completes what a whole set of `.swap` files says (leftovers.py), in the way that Kafka does. The caller syncs the
folder; before that nothing is removed and no checkpoint moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.compaction.target import cleaned_path
from tidelog.log.names import LOG, SWAP
from tidelog.log.segment import Segment

if TYPE_CHECKING:
    from tidelog.log.compaction.task import Replacement
    from tidelog.log.log import Log


def still_there(log: Log, going: list[Segment]) -> bool:
    """Whether these segments are part of the log, one behind the other, and sealed."""
    first = next((number for number, segment in enumerate(log.segments) if segment is going[0]), len(log.segments))
    found = log.segments[first : first + len(going)]
    sealed = first + len(going) < len(log.segments)
    return sealed and all(one is other for one, other in zip(found, going, strict=True))


def swap_in(log: Log, going: list[Segment], new: Replacement, token: str) -> list[str]:
    """Replace `going`; the paths of what is to be removed when the folder was synced. Raises OSError half-way."""
    disk, folder = log.segments.around.disk, log.folder
    segment = Segment(folder, new.base, going[0].created_ms)
    segment.size = new.size
    segment.max_timestamp, segment.max_timestamp_offset = new.max_timestamp, new.max_timestamp_offset
    # Records without times are as old as their file: cleaning makes them no younger, as in Kafka.
    modified_ms = max(disk.modified_ms(old.stem + LOG) for old in going)
    disk.set_modified_ms(cleaned_path(folder, new.base, token, LOG), modified_ms)
    for suffix in [suffix for suffix in new.suffixes if suffix != LOG] + [LOG]:
        disk.rename(cleaned_path(folder, new.base, token, suffix), segment.stem + suffix + SWAP)
    removed = [path for old in going for path in old.set_aside(disk)]
    for suffix in new.suffixes:
        disk.rename(segment.stem + suffix + SWAP, segment.stem + suffix)
    removed += log.replace_segments(going, segment)
    return removed
