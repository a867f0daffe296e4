"""Files and folders. Paths are absolute strings; every call may raise OSError, as the operating system would.

Durability is explicit: what was written is durable after `File.sync`; a created, renamed or removed name is durable
after `Disk.sync_folder` of its folder; `Disk.sync_all` makes everything on the file system durable at once. The
simulated disk forgets whatever was not made durable.
"""

from typing import Protocol

from tidelog.env.network import Buffer, Socket


class ReadableFile(Protocol):
    """An open file, for who only looks into it."""

    path: str

    def size(self) -> int: ...

    def read(self, pos: int, count: int) -> bytes:
        """Up to `count` bytes from `pos`; fewer only at the end of the file."""
        ...


class File(ReadableFile, Protocol):
    """An open file, read anywhere and written at its end. Closed when the last reference to it goes.

    `suspect`: its bytes couldn't be read once, or not be sent. Whoever promises some of them reads them first.
    """

    suspect: bool

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. On OSError an unknown part of it may have been written."""
        ...

    def append_all(self, parts: list[Buffer]) -> None:
        """The same for several, one after the other, in one system call."""
        ...

    def view(self, pos: int, count: int) -> memoryview:
        """The bytes [pos, pos+count), for a socket to send: mapped where the disk can do so, so nobody else may look.

        OSError where the file has no such range.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def start_sync(self) -> None:
        """Have what was written go to the disk soon, so that the syncs of several files overlap there. It promises
        nothing: `sync` does, and tells of errors."""
        ...

    def sync(self) -> None:
        """Make contents and size durable (fdatasync). Blocks: for `Loop.run_blocking`, or at start and stop.

        After an error the contents are unknown: never call it again and believe the answer.
        """
        ...

    def send(self, sock: Socket, pos: int, count: int) -> int:
        """Send up to `count` bytes from `pos` straight to the socket; how many went. May raise BlockingIOError."""
        ...


class FixedFile(ReadableFile, Protocol):
    """A file of a fixed size, written anywhere in it. All of its bytes were written when it was made, so that a sync
    has to do with these bytes alone, and not with what else the file system keeps of it."""

    def write(self, pos: int, data: Buffer) -> None:
        """Write all of `data`, which fits, at `pos`. On OSError an unknown part of it may have been written."""
        ...

    def sync(self) -> None:
        """As `File.sync`."""
        ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending; FileNotFoundError where it is missing and not to be created."""
        ...

    def open_fixed(self, path: str) -> FixedFile:
        """Open one that `make_fixed` made."""
        ...

    def make_fixed(self, path: str, size: int) -> FixedFile:
        """Make a file of so many zeros, which are on stable storage then, as its name is. Blocks, like `File.sync`."""
        ...

    def write_at(self, path: str, pos: int, data: Buffer) -> None:
        """Write over what stands at `pos` of the file, and on behind its end. Nobody else may write to it meanwhile.

        A power loss before the next sync leaves the old or the new bytes, sector by sector.
        """
        ...

    def exists(self, path: str) -> bool: ...

    def list_folder(self, path: str) -> list[str]:
        """Names in the folder, sorted."""
        ...

    def is_folder(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When something was last written to the file, in milliseconds since 1970."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Have the file count as last written to at this time. Not durable."""
        ...

    def identity(self, path: str) -> str:
        """What tells the file from a copy of it that was put in its place. It stays as it is when a folder above is
        renamed, and over a power loss. A copy of the whole volume it doesn't tell."""
        ...

    def make_folders(self, path: str) -> bool:
        """Make the folder and its parents; fine where it exists. Whether it is new."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def sync_folder(self, path: str) -> None:
        """Make names created, renamed or removed in the folder durable."""
        ...

    def sync_all(self, path: str) -> None:
        """Make everything on the file system that holds `path` durable (syncfs). Blocks, like `File.sync`."""
        ...

    def read_whole(self, path: str) -> bytes: ...

    def write_whole(self, path: str, data: bytes) -> None:
        """Replace the file's contents atomically and durably: temporary file, sync, rename, sync of the folder."""
        ...

    def lock_folder(self, path: str) -> object:
        """Take the folder (Kafka's `.lock`), while the answer is referenced; BlockingIOError if another has it."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...
