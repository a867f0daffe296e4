"""A partition's folder as the last process left it: what is a segment, what to clear away.

Deletion and compaction rename files before they remove them; whoever was killed in between leaves `.deleted`,
`.cleaned` and `.swap` behind. A `.swap` segment is whole: it takes the place of those whose range it covers.
"""

from typing import NamedTuple

from tidelog.env.disk import Disk
from tidelog.log.checkpoints import PARTITION_METADATA
from tidelog.log.names import (
    AGAIN,
    CLEANED,
    DELETED,
    LOG,
    SEGMENT_FILES,
    SNAPSHOT,
    SWAP,
    TXN_INDEX,
    parse_segment_file,
    segment_stem,
)
from tidelog.log.rewriting import UNFINISHED, put_back
from tidelog.log.scan import batches

_KEPT = ".checkpoint.deleted"  # snapshots of the metadata log, which are not ours to clear away


class Found(NamedTuple):
    """Base offsets of the segments, offsets of the producer snapshots, both rising.

    `metadata`: the topic is named. `aborted`: some segment has a transaction index.
    """

    bases: list[int]
    snapshots: list[int]
    metadata: bool
    aborted: bool


def tidy(disk: Disk, folder: str) -> Found:
    """Clear away what was left half done, and list the rest."""
    names = disk.list_folder(folder)
    if any(AGAIN in name for name in names):
        names = _write_rest_again(disk, folder, names)
    if any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):
        names = _finish(disk, folder, names)
    files: dict[str, list[int]] = {}
    for name in names:
        parsed = parse_segment_file(name)
        if parsed is not None:
            files.setdefault(parsed[1], []).append(parsed[0])
    bases = files.get(LOG, [])
    for suffix in SEGMENT_FILES[1:]:
        for base in set(files.get(suffix, ())) - set(bases):
            disk.remove(f"{folder}/{base:020d}{suffix}")
    for suffix in (*SEGMENT_FILES, SNAPSHOT):
        for base in files.get(suffix + UNFINISHED, ()):
            disk.remove(f"{folder}/{base:020d}{suffix}{UNFINISHED}")
    return Found(bases, files.get(SNAPSHOT, []), PARTITION_METADATA in names, TXN_INDEX in files)


def _write_rest_again(disk: Disk, folder: str, names: list[str]) -> list[str]:
    for name in names:
        if name.endswith(AGAIN + UNFINISHED):
            disk.remove(f"{folder}/{name}")
        elif name.endswith(AGAIN):
            if name.removesuffix(AGAIN) in names:
                put_back(disk, f"{folder}/{name.removesuffix(AGAIN)}")
            else:
                disk.remove(f"{folder}/{name}")
    disk.sync_folder(folder)
    return disk.list_folder(folder)


def _finish(disk: Disk, folder: str, names: list[str]) -> list[str]:
    """A swap counts when all of its files have their names, the segment's own last.

    Kafka splits a segment that way, too, and renames the first one last: with it unfinished, the later ones are. Our
    names of `.cleaned` files have a token, one for each cleaning: they tell of their own segment only.
    """
    first_cleaned, cleaned = 2**63, set[int]()
    for name in names:
        parsed = parse_segment_file(name) if name.endswith(CLEANED) else None
        if parsed is not None and parsed[1].removesuffix(CLEANED) in SEGMENT_FILES:
            first_cleaned = min(first_cleaned, parsed[0])
        elif parsed is not None:
            cleaned.add(parsed[0])
    swaps: list[str] = []
    for name in names:
        parsed = parse_segment_file(name)
        unfinished = (
            name.endswith(SWAP)
            and parsed is not None
            and (
                parsed[0] >= first_cleaned
                or parsed[0] in cleaned
                or f"{segment_stem(parsed[0])}{LOG}{SWAP}" not in names
            )
        )
        if (name.endswith(DELETED) and not name.endswith(_KEPT)) or name.endswith(CLEANED) or unfinished:
            disk.remove(f"{folder}/{name}")
        elif name.endswith(SWAP):
            swaps.append(name)
    if swaps:
        _swap_in(disk, folder, names, swaps)
    disk.sync_folder(folder)
    return disk.list_folder(folder)


def _swap_in(disk: Disk, folder: str, names: list[str], swaps: list[str]) -> None:
    low, high = 2**63, -1
    bases: set[int] = set()
    for name in swaps:
        parsed = parse_segment_file(name)
        if parsed is not None and parsed[1] == LOG + SWAP:
            low, high = min(low, parsed[0]), max(high, parsed[0])
            bases.add(parsed[0])
            file = disk.open(f"{folder}/{name}")
            for _, fields in batches(file, 0, file.size(), check=False):
                high = max(high, fields.last_offset + 1)
    for name in names:
        parsed = parse_segment_file(name)
        if parsed is not None and parsed[1] in SEGMENT_FILES and (low <= parsed[0] < high or parsed[0] in bases):
            disk.remove(f"{folder}/{name}")
    for name in swaps:
        disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")
