"""A disk in memory that keeps only what was made durable: it forgets, tears, fills up, fails a sync, flips a bit.

`crash` is a power loss. A process that was killed leaves the page cache behind: nothing happens to the disk then,
but for its locks (`release_locks`).
"""

import errno
import os
from collections.abc import Callable, Iterator
from posixpath import dirname, normpath

from tidelog.env.network import Buffer, Socket
from tidelog.sim.world.inode import FileNode, FolderNode, Node, crashed
from tidelog.sim.world.random import SimRandom

_UNBOUNDED_BYTES = 1 << 40


class SimFile:
    """`env.File` on a simulated disk."""

    __slots__ = ("__weakref__", "_disk", "_node", "path", "suspect")

    def __init__(self, disk: "SimDisk", node: FileNode, path: str) -> None:
        self._disk = disk
        self._node = node
        self.path = path
        self.suspect = False

    def size(self) -> int:
        return len(self._node.data)

    def append(self, data: Buffer) -> None:
        disk = self._disk
        room = disk.room()
        if len(data) > room:
            self._append_some(data, max(room, 0))
            disk.struck("no space")
            raise _error(errno.ENOSPC, self.path)
        if disk.failing_appends and self.path.endswith(disk.failing_suffix):
            disk.failing_appends -= 1
            disk.struck("EIO on append")
            if self._append_some(data, len(data)):
                disk.struck("short write")
            raise _error(errno.EIO, self.path)
        if disk.touched is not None:
            done = self._append_some(data, len(data))
            disk.touched("append", self.path)
            data = memoryview(data)[done:]
        self._node.append(data)
        self._node.modified_ms = self._disk.now_ms()

    def append_all(self, parts: list[Buffer]) -> None:
        self.append(b"".join(parts))

    def _append_some(self, data: Buffer, most: int) -> int:
        count = self._disk.random.random_int(0, most)
        self._node.append(memoryview(data)[:count])
        return count

    def read(self, pos: int, count: int) -> bytes:
        if self._disk.bad and self._good(pos, count) < count:
            self.suspect = True
            self._disk.struck("EIO on read")
            raise _error(errno.EIO, self.path)
        return bytes(self._node.data[pos : pos + count])

    def view(self, pos: int, count: int) -> memoryview:
        assert pos + count <= len(self._node.data), f"{self.path} has no bytes [{pos}, {pos + count})"
        return memoryview(self.read(pos, count))

    def truncate(self, size: int) -> None:
        if self._disk.touched is not None:
            self._disk.touched("truncate", self.path)
        self._node.truncate(size)
        if self._disk.touched is not None:
            self._disk.touched("truncate", self.path)

    def start_sync(self) -> None:
        """What of it was on the disk when the power goes is drawn then."""

    def sync(self) -> None:
        self._disk.sync_node(self._node, self.path)

    def send(self, sock: Socket, pos: int, count: int) -> int:
        if self._disk.bad or self._disk.failing_sends:
            count = self._good(pos, count)
            if not count or self._disk.failing_sends:
                self._disk.failing_sends = max(0, self._disk.failing_sends - 1)
                self._disk.struck("EIO on send")
                raise _error(errno.EIO, self.path)
        return sock.send(bytes(self._node.data[pos : pos + count]))

    def _good(self, pos: int, count: int) -> int:
        """How many of these bytes come before any that can't be read."""
        bad = self._disk.bad.get(self.path)
        if bad is None or pos >= bad.stop or pos + count <= bad.start:
            return count
        return max(0, bad.start - pos)


class SimFixedFile:
    """`env.FixedFile` on a simulated disk."""

    __slots__ = ("_disk", "_node", "path")

    def __init__(self, disk: "SimDisk", node: FileNode, path: str) -> None:
        self._disk = disk
        self._node = node
        self.path = path

    def size(self) -> int:
        return len(self._node.data)

    def read(self, pos: int, count: int) -> bytes:
        return bytes(self._node.data[pos : pos + count])

    def write(self, pos: int, data: Buffer) -> None:
        disk = self._disk
        disk.about_to_write(self.path)
        done = 0
        if disk.failing_appends and self.path.endswith(disk.failing_suffix):
            disk.failing_appends -= 1
            disk.struck("EIO on a write to the journal")
            self._node.write_at(pos, memoryview(data)[: disk.random.random_int(0, len(data))])
            raise _error(errno.EIO, self.path)
        if disk.touched is not None:
            done = disk.random.random_int(0, len(data))
            self._node.write_at(pos, memoryview(data)[:done])
            disk.touched("append", self.path)
        self._node.write_at(pos + done, memoryview(data)[done:])

    def sync(self) -> None:
        try:
            self._disk.sync_node(self._node, self.path)
        except OSError:
            self._disk.struck("failed sync of the journal")
            raise


class FolderLock:
    """Held while referenced, or until the process is killed."""

    __slots__ = ("_held", "_path")

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path
        held.add(path)

    def __del__(self) -> None:
        self._held.discard(self._path)


class SimDisk:
    """`env.Disk` in memory.

    `capacity`: bytes in all, None for no bound. `failing_syncs`: how many of the next syncs fail; `lying`: syncs report
    success and do nothing, the broken disk that the checkers must find. `failed_sync_keeps_cache`: see FileNode.
    `now_ms` dates what is written. `cache_lost` is called when a sync fails, `renamed` with each new name, `struck`
    with the kind of each fault that happens. `bad`: bytes of files, by their paths, that can't be read.
    `failing_sends`: how many of the next sends from a file fail. `failing_appends`: how many of the next ones, to names
    that end in `failing_suffix`, fail halfway. `touched` is called in the midst of each append, and before and after
    each truncation, sync and creation, with that word and the path: whoever dies there raises.
    """

    def __init__(self, random: SimRandom) -> None:
        self.random = random
        self.root = FolderNode()
        self.capacity: int | None = None
        self.failing_syncs = 0
        self.failed_sync_keeps_cache = False
        self.lying = False
        self.now_ms: Callable[[], int] = lambda: 0
        self._identities = 0
        self.cache_lost: Callable[[], None] | None = None
        self.renamed: Callable[[str], None] | None = None
        self.struck: Callable[[str], None] = lambda _: None
        self.bad: dict[str, range] = {}
        self.failing_sends = 0
        self.failing_appends = 0
        self.failing_suffix = ""
        self.touched: Callable[[str, str], None] | None = None
        self._locks: set[str] = set()

    # What env.Disk promises

    def open(self, path: str, *, create: bool = False) -> SimFile:
        node = self._find(path)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            node = FileNode(modified_ms=self.now_ms())
            if self.touched is not None:
                self.touched("create", path)
            self._parent(path).change({_name(path): node})
            if self.touched is not None:
                self.touched("create", path)
        if not isinstance(node, FileNode):
            raise _error(errno.EISDIR, path)
        return self._opened(node, path)

    def open_fixed(self, path: str) -> SimFixedFile:
        return SimFixedFile(self, self._file(path), path)

    def make_fixed(self, path: str, size: int) -> SimFixedFile:
        file = self.open(path, create=True)
        file.truncate(0)
        file.append(bytes(size))
        file.sync()
        self.sync_folder(dirname(path))
        return self.open_fixed(path)

    def about_to_write(self, path: str) -> None:
        """A fixed file is about to be written: a disk that can't be written to overrides it."""

    def _opened(self, node: FileNode, path: str) -> SimFile:
        """What `open` gives: a disk whose files do something of their own overrides it."""
        return SimFile(self, node, path)

    def write_at(self, path: str, pos: int, data: Buffer) -> None:
        node = self._file(path)
        if pos + len(data) - len(node.data) > self.room():
            self.struck("no space")
            raise _error(errno.ENOSPC, path)
        if self.touched is not None:
            node.write_at(pos, memoryview(data)[: self.random.random_int(0, len(data))])
            self.touched("append", path)
        node.write_at(pos, data)
        node.modified_ms = self.now_ms()

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list_folder(self, path: str) -> list[str]:
        return sorted(self._folder(path).names)

    def is_folder(self, path: str) -> bool:
        return isinstance(self._find(path), FolderNode)

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def identity(self, path: str) -> str:
        node = self._file(path)
        if node.identity is None:
            self._identities += 1
            node.identity = self._identities
        return str(node.identity)

    def make_folders(self, path: str) -> bool:
        folder, new = self.root, False
        for part in _parts(path):
            child = folder.names.get(part)
            if child is None:
                child, new = FolderNode(), True
                folder.change({part: child})
            elif not isinstance(child, FolderNode):
                raise _error(errno.ENOTDIR, path)
            folder = child
        return new

    def remove(self, path: str) -> None:
        self._file(path)
        self._parent(path).change({_name(path): None})

    def remove_tree(self, path: str) -> None:
        if self._find(path) is None:
            raise _error(errno.ENOENT, path)
        self._parent(path).change({_name(path): None})

    def rename(self, old: str, new: str) -> None:
        node = self._find(old)
        if node is None:
            raise _error(errno.ENOENT, old)
        source, target = self._parent(old), self._parent(new)
        if source is target:
            source.change({_name(old): None, _name(new): node})
        else:
            target.change({_name(new): node})
            source.change({_name(old): None})
        if self.renamed is not None:
            self.renamed(new)

    def sync_folder(self, path: str) -> None:
        folder = self._folder(path)
        self._maybe_fail_sync(path)
        if not self.lying:
            folder.sync()

    def sync_all(self, path: str) -> None:
        nodes = list(self._walk(self.root))
        if self.failing_syncs:
            for node in nodes:
                if isinstance(node, FileNode) and node.dirty:
                    node.fail_sync(self.random, keep_cache=self.failed_sync_keeps_cache)
        self._maybe_fail_sync(path)
        if not self.lying:
            for node in nodes:
                node.sync()

    def read_whole(self, path: str) -> bytes:
        return bytes(self._file(path).data)

    def write_whole(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        self.rename(temporary, path)
        self.sync_folder(dirname(path))

    def lock_folder(self, path: str) -> object:
        if path in self._locks:
            raise _error(errno.EAGAIN, path)
        return FolderLock(self._locks, path)

    def free_bytes(self, path: str) -> int:
        return max(0, self.room())

    def total_bytes(self, path: str) -> int:
        return _UNBOUNDED_BYTES if self.capacity is None else self.capacity

    # What the simulator does to it

    def crash(self) -> None:
        """The power goes: what was not durable is forgotten, torn or, with luck, kept. Open files are of the past."""
        for each in self._walk(self.root):
            if isinstance(each, FileNode) and each.over:
                self.struck("torn or forgotten in place")
        node = crashed(self.root, self.random)
        assert isinstance(node, FolderNode)
        self.root = node
        self.release_locks()

    def release_locks(self) -> None:
        """The process is gone, and its locks with it."""
        self._locks = set()

    def flip_bit(self, path: str, start: int, end: int) -> int:
        """Damage one bit of the file's bytes [start, end), on the platter and in the cache; the byte's position."""
        node = self._file(path)
        pos = self.random.random_int(start, end - 1)
        mask = 1 << self.random.random_int(0, 7)
        self.struck("flipped bit")
        node.data[pos] ^= mask
        if pos < len(node.durable):
            node.durable[pos] ^= mask
        return pos

    def put(self, path: str, data: bytes) -> None:
        """The file holds this, name and contents, on the platter and in the cache, whoever did that: no fault of the
        disk gets in the way, and nobody is told."""
        folder, name = self._parent(path), _name(path)
        node = folder.names.get(name)
        if not isinstance(node, FileNode):
            node = FileNode(modified_ms=self.now_ms())
            folder.change({name: node})
            folder.sync()
        node.truncate(0)
        node.append(data)
        node.sync()

    def files(self, folder: str) -> list[str]:
        """The paths of all files in the folder, and in those in it."""
        paths: list[str] = []
        for name in self.list_folder(folder):
            path = f"{folder}/{name}"
            paths += self.files(path) if self.is_folder(path) else [path]
        return paths

    def used_bytes(self) -> int:
        return sum(len(node.data) for node in self._walk(self.root) if isinstance(node, FileNode))

    def room(self) -> int:
        return _UNBOUNDED_BYTES if self.capacity is None else self.capacity - self.used_bytes()

    def sync_node(self, node: FileNode, path: str) -> None:
        if self.touched is not None:
            self.touched("sync", path)
        if self.failing_syncs:
            node.fail_sync(self.random, keep_cache=self.failed_sync_keeps_cache)
        self._maybe_fail_sync(path)
        if not self.lying:
            node.sync()
        if self.touched is not None:
            self.touched("sync", path)

    def _maybe_fail_sync(self, path: str) -> None:
        if self.failing_syncs:
            self.failing_syncs -= 1
            self.struck("failed sync")
            if self.cache_lost is not None:
                self.cache_lost()
            raise _error(errno.EIO, path)

    def _walk(self, node: Node) -> Iterator[Node]:
        yield node
        if isinstance(node, FolderNode):
            for child in node.names.values():
                yield from self._walk(child)

    def _find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for part in _parts(path):
            if not isinstance(node, FolderNode):
                return None
            node = node.names.get(part)
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if isinstance(node, FileNode):
            return node
        raise _error(errno.ENOENT if node is None else errno.EISDIR, path)

    def _folder(self, path: str) -> FolderNode:
        node = self._find(path)
        if isinstance(node, FolderNode):
            return node
        raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)

    def _parent(self, path: str) -> FolderNode:
        return self._folder(dirname(normpath(path)))


def _parts(path: str) -> list[str]:
    assert path.startswith("/"), f"{path} is no absolute path"
    return [part for part in normpath(path).split("/") if part]


def _name(path: str) -> str:
    return normpath(path).rsplit("/", 1)[1]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
