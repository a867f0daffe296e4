"""Folders of partitions that a start found, and nobody asked for yet: in which data folder each partition is.

One partition may be in several data folders: a topic was deleted and made again, and the rename of the old folder
failed or the power took it back; or a data folder came back that was called lost. The topic's id in
`partition.metadata` says whose each is, in whatever order they are listed; where it doesn't tell them apart, nobody but
the operator can, and the start is refused.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tidelog.log import checkpoints
from tidelog.log.checkpoints import PARTITION_METADATA, CheckpointError
from tidelog.log.names import parse_partition_folder
from tidelog.log.opening import belongs_to_another
from tidelog.wire.uuids import uuid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidelog.env.disk import Disk
    from tidelog.log.opening import LogFolder
    from tidelog.wire.topic_partition import TopicPartition


class FolderError(ValueError):
    """A data folder belongs to another node or cluster, is missing, can't be read, or contradicts another."""


class Owner(Enum):
    """Whose a partition's folder is: the topic's by its id, another topic's, or the topic's as far as one can tell."""

    TOPIC = 1
    ANOTHER = 2
    UNKNOWN = 3


class PartitionFolders:
    """The data folder of each partition that was found; of those in several, the first until one is chosen."""

    def __init__(self) -> None:
        self._roots: dict[TopicPartition, str] = {}
        self._several: dict[TopicPartition, list[str]] = {}

    def look(self, disk: Disk, root: str, journaled: Iterable[TopicPartition] = ()) -> int:
        """Find those in a data folder, and those that only its journal knows of; how many."""
        count = 0
        for name in disk.list_folder(root):
            key = parse_partition_folder(name)
            if key is not None and disk.is_folder(f"{root}/{name}"):
                self.add(key, root)
                count += 1
        for key in journaled:
            if key not in self or root not in self.all_of(key):
                self.add(key, root)
                count += 1
        return count

    def add(self, key: TopicPartition, root: str) -> None:
        if key in self._roots:
            self._several.setdefault(key, [self._roots[key]]).append(root)
        else:
            self._roots[key] = root

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._roots

    def __len__(self) -> int:
        return len(self._roots)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._roots)

    def __getitem__(self, key: TopicPartition) -> str:
        return self._roots[key]

    def get(self, key: TopicPartition) -> str | None:
        return self._roots.get(key)

    def drop(self, key: TopicPartition) -> None:
        self._roots.pop(key, None)
        self._several.pop(key, None)

    def leave(self, key: TopicPartition, root: str) -> None:
        """It isn't in this one any more."""
        others = [other for other in self.all_of(key) if other != root]
        self.drop(key)
        for other in others:
            self.add(key, other)

    def is_any_in(self, root: str) -> bool:
        return root in self._roots.values()

    def all_of(self, key: TopicPartition) -> list[str]:
        """All data folders with this one."""
        return list(self._several.get(key) or ([self._roots[key]] if key in self._roots else []))

    def several(self) -> dict[TopicPartition, list[str]]:
        """Those that are in more than one data folder, with all of these."""
        return dict(self._several)

    def choose(self, key: TopicPartition, root: str) -> None:
        """Of those in several data folders, or in the wrong one, this one counts, if it is there at all."""
        known = root in self._several.pop(key, ()) or self._roots.get(key) == root
        self._roots.pop(key, None)
        if known:
            self._roots[key] = root


def choose(disk: Disk, folders: Sequence[LogFolder], topic_id: bytes, report: Callable[[str], None]) -> str | None:
    """The data folder that has the topic's partition, of several with a folder of its name; None: all are others'."""
    owners = {folder.root: _owner(disk, folder, topic_id, report) for folder in folders}
    for wanted in (Owner.TOPIC, Owner.UNKNOWN):
        roots = [root for root, found in owners.items() if found is wanted]
        there = [folder.root for folder in folders if folder.root in roots and disk.exists(folder.path)]
        if len(there) == 1:  # it was moved since: others are what a journal has of it
            return there[0]
        if len(roots) > 1:
            paths = " and ".join(folder.path for folder in folders if folder.root in roots)
            same = f"all have topic id {uuid_text(topic_id)}"
            why = same if wanted is Owner.TOPIC else f"none has the topic's id in its {PARTITION_METADATA}"
            raise FolderError(
                f"a partition is twice in the data folders: {paths}; {why}. Which records count, only you can know: "
                "look at them with `tidelog log dump`, and move all but one of these folders away"
            )
        if roots:
            return roots[0]
    return None


def _owner(disk: Disk, folder: LogFolder, topic_id: bytes, report: Callable[[str], None]) -> Owner:
    try:
        named = checkpoints.read_partition_metadata(disk, f"{folder.path}/{PARTITION_METADATA}")
    except CheckpointError:
        named = None
    if named is None and folder.journal:
        named = folder.journal[-1].topic_id
    if named == topic_id:
        return Owner.TOPIC
    reports: list[str] = []
    another = belongs_to_another(disk, folder, topic_id, reports)
    for message in reports:
        report(message)
    return Owner.ANOTHER if another else Owner.UNKNOWN
