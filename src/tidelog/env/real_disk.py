"""The real disk: os.write, fdatasync, sendfile, mmap."""

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
from weakref import ref

from tidelog.env.mapping import Mapping
from tidelog.env.network import Buffer, Socket

# A mapping is renewed once the file has outgrown it by this much; what lies beyond it is read instead. Renewing a
# mapping for every few kilobytes that a growing segment gained would cost more than it saves.
REMAP_BYTES = 1 << 20
ZEROS_BYTES = 1 << 20

# What Python doesn't offer.
_libc = ctypes.CDLL(None, use_errno=True)
_sync_file_range = _libc.sync_file_range
_sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
_RANGE_WRITE = 2
"""Begin to write the dirty pages, wait for none."""
FS_IOC_GETVERSION = 0x80087601
"""Asks for the generation of an inode."""


class RealFile:
    """An open file descriptor, closed when the last reference goes."""

    __slots__ = ("__weakref__", "_fd", "_map", "_mapped", "path", "suspect")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.suspect = False
        self._fd = fd
        self._map: memoryview | None = None
        self._mapped = 0

    def __del__(self) -> None:
        os.close(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def append(self, data: Buffer) -> None:
        written = os.write(self._fd, data)
        if written != len(data):
            self._append_rest(memoryview(data), written)

    def append_all(self, parts: list[Buffer]) -> None:
        if len(parts) == 1:
            self.append(parts[0])
            return
        written, size = os.writev(self._fd, parts), sum(map(len, parts))
        if written != size:
            self._append_rest(memoryview(b"".join(parts)), written)

    def _append_rest(self, view: memoryview, written: int) -> None:
        while written < len(view):
            written += os.write(self._fd, view[written:])

    def read(self, pos: int, count: int) -> bytes:
        data = self._read_some(pos, count)
        if len(data) == count or not data:
            return data
        parts = [data]
        got = len(data)
        while got < count:
            data = self._read_some(pos + got, count - got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def _read_some(self, pos: int, count: int) -> bytes:
        try:
            return os.pread(self._fd, count, pos)
        except OSError as error:
            self.suspect = True
            raise OSError(error.errno, f"{error.strerror}, bytes {pos} to {pos + count}", self.path) from error

    def view(self, pos: int, count: int) -> memoryview:
        end = pos + count
        if end > self._mapped or self.suspect:
            if end - self._mapped < REMAP_BYTES or self.suspect:
                data = self.read(pos, count)
                if len(data) == count:
                    return memoryview(data)
            size = os.fstat(self._fd).st_size
            if end > size:
                self.suspect = True
                raise OSError(errno.EIO, f"asked for bytes {pos} to {end}, but it has {size}", self.path)
            mapping = Mapping(self._fd, size, prot=mmap.PROT_READ)
            mapping.file = ref(self)
            self._map = memoryview(mapping)
            self._mapped = size
        assert self._map is not None
        return self._map[pos:end]

    def truncate(self, size: int) -> None:
        self._map, self._mapped = None, 0
        os.ftruncate(self._fd, size)

    def start_sync(self) -> None:
        _sync_file_range(self._fd, 0, 0, _RANGE_WRITE)  # a failure is told by the sync that follows

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def send(self, sock: Socket, pos: int, count: int) -> int:
        return os.sendfile(sock.fileno(), self._fd, pos, count)


class RealFixedFile:
    """An open file descriptor, closed when the last reference goes."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def __del__(self) -> None:
        os.close(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, pos: int, count: int) -> bytes:
        parts: list[bytes] = []
        while count and (data := os.pread(self._fd, count, pos)):
            parts.append(data)
            pos, count = pos + len(data), count - len(data)
        return b"".join(parts)

    def write(self, pos: int, data: Buffer) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, pos)
            pos, view = pos + written, view[written:]

    def sync(self) -> None:
        os.fdatasync(self._fd)


class RealDisk:
    """The operating system's files."""

    def __init__(self) -> None:
        # Held open from the lock on: a failed write is told once to each descriptor that was open then. One that is
        # opened later hears nothing of it where anyone else on the machine has called syncfs in between.
        self._roots: dict[str, _Held] = {}

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644))

    def open_fixed(self, path: str) -> RealFixedFile:
        return RealFixedFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def make_fixed(self, path: str, size: int) -> RealFixedFile:
        file = RealFixedFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        zeros = bytes(min(size, ZEROS_BYTES))
        for pos in range(0, size, ZEROS_BYTES):
            file.write(pos, memoryview(zeros)[: size - pos])
        file.sync()
        self.sync_folder(os.path.dirname(path))
        return file

    def write_at(self, path: str, pos: int, data: Buffer) -> None:
        # Not as `open` does: with O_APPEND Linux would append, whatever the position.
        RealFixedFile(path, os.open(path, os.O_WRONLY | os.O_CLOEXEC)).write(pos, data)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_folder(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def identity(self, path: str) -> str:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.fstat(fd)
            try:  # numbers of inodes are used again, with another generation
                generation = fcntl.ioctl(fd, FS_IOC_GETVERSION, bytes(8))[:4].hex()
            except OSError:  # a file system that keeps none: a copy has another time, and so has what was renamed
                generation = str(stat.st_ctime_ns)
            return f"{stat.st_ino}.{generation}"
        finally:
            os.close(fd)

    def make_folders(self, path: str) -> bool:
        try:
            os.mkdir(path)  # mostly that is all: each look before it would be another call
        except FileExistsError:
            os.makedirs(path, exist_ok=True)  # refuses what isn't a folder
            return False
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)
        return True

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def sync_folder(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        root = self._roots.get(path) or _open_folder(path)
        _syncfs(root.fd, path)

    def read_whole(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_whole(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
        os.rename(temporary, path)
        self.sync_folder(os.path.dirname(path))

    def lock_folder(self, path: str) -> object:
        # POSIX record locks, since Apache Kafka takes the same file with the same kind of lock.
        fd = os.open(os.path.join(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        held = _Held(fd)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except PermissionError as error:  # POSIX lets a system answer EACCES where another process holds the lock
            raise BlockingIOError(error.errno, error.strerror, path) from error
        self._roots[path] = _open_folder(path)
        return held

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize


class _Held:
    """A descriptor that is closed, and a lock that is released, when this goes."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


def _open_folder(path: str) -> _Held:
    return _Held(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def _syncfs(fd: int, path: str) -> None:
    """syncfs(2). Reports write errors since Linux 5.8."""
    if _libc.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
