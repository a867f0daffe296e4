"""Data folders as disks of their own: one can be away, read-only or slow; and a process that may open no more files.

What happens to the bytes of a disk is in `disk.py`.
"""

import errno
import os

from tidelog.env.network import Buffer
from tidelog.sim.world.disk import SimDisk, SimFile, SimFixedFile
from tidelog.sim.world.inode import FileNode
from tidelog.sim.world.random import SimRandom

AWAY = "/away"


class MountedFile(SimFile):
    """A file on a disk that may be read-only, or slow."""

    __slots__ = ("_mounted",)

    def __init__(self, disk: "MountedDisk", node: FileNode, path: str) -> None:
        super().__init__(disk, node, path)
        self._mounted = disk

    def append(self, data: Buffer) -> None:
        self._mounted.check_writable(self.path)
        super().append(data)

    def truncate(self, size: int) -> None:
        self._mounted.check_writable(self.path)
        super().truncate(size)


class MountedDisk(SimDisk):
    """`read_only` and `slow` name a folder; what is synced in a slow one takes `slow_s` longer.

    `no_descriptors` is how likely it is that the process may not open another file.
    """

    def __init__(self, random: SimRandom) -> None:
        super().__init__(random)
        self.read_only: str | None = None
        self.slow: str | None = None
        self.slow_s = 0.0
        self.no_descriptors = 0.0
        self._lag_s = 0.0

    def lag(self) -> float:
        """How much longer what was done since the last question took than it should have."""
        lag_s, self._lag_s = self._lag_s, 0.0
        return lag_s

    def check_writable(self, path: str) -> None:
        if _is_in(path, self.read_only):
            self.struck("read-only folder")
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def unmount(self, folder: str, *, leaves_folder: bool) -> None:
        """The folder is away; where it was there is an empty one, or none."""
        self.rename(folder, AWAY)
        if leaves_folder:
            self.make_folders(folder)
        self.sync_folder("/")
        self.struck("folder away")

    def mount(self, folder: str) -> None:
        """It is back. What was written in its place is hidden."""
        if self.exists(folder):
            self.remove_tree(folder)
        self.rename(AWAY, folder)
        self.sync_folder("/")

    # What env.Disk promises

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self._take_descriptor(path)
        if create and not self.exists(path):
            self.check_writable(path)
        return super().open(path, create=create)

    def _opened(self, node: FileNode, path: str) -> SimFile:
        return MountedFile(self, node, path)

    def open_fixed(self, path: str) -> SimFixedFile:
        self._take_descriptor(path)
        return super().open_fixed(path)

    def about_to_write(self, path: str) -> None:
        self.check_writable(path)

    def write_at(self, path: str, pos: int, data: Buffer) -> None:
        self._take_descriptor(path)
        self.check_writable(path)
        super().write_at(path, pos, data)

    def list_folder(self, path: str) -> list[str]:
        self._take_descriptor(path)
        return super().list_folder(path)

    def read_whole(self, path: str) -> bytes:
        self._take_descriptor(path)
        return super().read_whole(path)

    def make_folders(self, path: str) -> bool:
        if not self.exists(path):
            self.check_writable(path)
        return super().make_folders(path)

    def remove(self, path: str) -> None:
        self.check_writable(path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.check_writable(path)
        super().remove_tree(path)

    def rename(self, old: str, new: str) -> None:
        self.check_writable(old)
        super().rename(old, new)

    def sync_folder(self, path: str) -> None:
        self._take_descriptor(path)
        self._linger(path)
        super().sync_folder(path)

    def sync_all(self, path: str) -> None:
        self._take_descriptor(path)
        self._linger(path)
        super().sync_all(path)

    def sync_node(self, node: FileNode, path: str) -> None:
        self._linger(path)
        super().sync_node(node, path)

    def lock_folder(self, path: str) -> object:
        self._take_descriptor(path)
        self.check_writable(f"{path}/.lock")
        return super().lock_folder(path)

    def _take_descriptor(self, path: str) -> None:
        if self.no_descriptors and self.random.chance(self.no_descriptors):
            self.struck("EMFILE")
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def _linger(self, path: str) -> None:
        if _is_in(path, self.slow):
            self.struck("slow sync")
            self._lag_s += self.slow_s


def _is_in(path: str, folder: str | None) -> bool:
    return folder is not None and (path == folder or path.startswith(f"{folder}/"))
