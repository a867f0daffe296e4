"""Whose folder it is: a topic partition in a data folder, and the paths in there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.bounds import SECTOR_BYTES
from tidelog.log.checkpoints import PARTITION_METADATA, partition_metadata
from tidelog.log.names import SNAPSHOT, partition_folder, segment_stem
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.env.disk import Disk
    from tidelog.wire.topic_partition import TopicPartition


class PartitionFolder:
    """A partition, by its names, and the settings of its topic. `root` is the data folder that it lies in."""

    __slots__ = ("config", "partition", "root", "topic", "topic_id")

    def __init__(self, root: str, topic: str, partition: int, topic_id: bytes, config: TopicConfig) -> None:
        self.root = root
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config

    @property
    def place(self) -> str:
        """Its name in messages, and of its folder."""
        return partition_folder(self.topic, self.partition)

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def folder(self) -> str:
        return f"{self.root}/{partition_folder(self.topic, self.partition)}"

    def snapshot_path(self, offset: int) -> str:
        return f"{self.folder}/{segment_stem(offset)}{SNAPSHOT}"

    def name_topic_again(self, disk: Disk, *, durably: bool) -> None:
        """Say, after a crash, which topic's it is. What a failed sync left in memory only is dirty again then.

        What it says can be made again, so no copy comes first, as of records (rewriting.py).
        """
        self.name_topic(disk)
        path = f"{self.folder}/{PARTITION_METADATA}"
        try:
            file = disk.open(path)
        except FileNotFoundError:
            return
        disk.write_at(path, 0, file.read(0, SECTOR_BYTES))
        if durably:
            file.sync()

    def name_topic(self, disk: Disk, *, new: bool = False) -> bool:
        """Say in the folder, which is `new` or not, which topic's it is; whether one that isn't didn't say so.

        Not durable yet: the group commit sees to that.
        """
        if self.topic_id == ZERO_UUID:
            return False
        wanted = partition_metadata(self.topic_id)
        file = disk.open(f"{self.folder}/{PARTITION_METADATA}", create=True)
        if new:
            file.append(wanted)
        elif file.read(0, len(wanted) + 1) != wanted:
            file.truncate(0)
            file.append(wanted)
            return True
        return False
