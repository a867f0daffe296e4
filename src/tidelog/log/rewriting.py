"""At a start after a crash: writing a log's tail again, so that the sync that follows means something.

When a sync fails, ext4 and XFS keep the pages that they couldn't write and call them clean. Whoever reads sees them,
the next sync finds nothing to do and succeeds, and the next power loss takes them away. The process that saw the
failure trusts no later sync (commit.py). The next process can't know: the kernel tells of an error once, and the one
that it told may have been killed while it waited for the answer, as one does with a process that hangs on a failing
disk. So neither cutting the log when its sync fails nor a note on the disk is right in all cases; what is written again
is dirty again, whatever happened before, and nothing that could be read is given up.

Only what is behind the recovery point is in doubt, 64 MB a log at most. It may have been durable and shown all the
same, so it must not be cut and written again without more: the power may go in between. First goes a copy, made
durable, then the tail, then the copy is removed. A start that finds a whole copy puts it back (`put_back`). Of a small
file the copy takes the place.
"""

from __future__ import annotations

import errno
from posixpath import dirname
from struct import Struct
from typing import TYPE_CHECKING

from tidelog.log.bounds import SMALL_BYTES
from tidelog.log.names import AGAIN
from tidelog.wire.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.env.disk import Disk, File

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
UNFINISHED = ".tmp"

_CHUNK_BYTES = 1 << 20
_HEAD = Struct(">qqI")  # where the tail begins, its bytes, their checksum


def write_again(disk: Disk, path: str, start: int) -> bool:
    """Write the file's bytes from `start` on once more. False where the disk has no room for the copy.

    The file may be another one under the same name then: whoever has it open opens it again. When it returns and the
    folder is synced, the bytes are on stable storage.
    """
    file, copy = disk.open(path), path + AGAIN
    small = file.size() <= SMALL_BYTES
    try:
        _copy(file, 0 if small else start, disk.open(copy + UNFINISHED, create=True), headed=not small)
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        disk.remove(copy + UNFINISHED)
        return False
    if small:
        disk.rename(copy + UNFINISHED, path)
        return True
    disk.rename(copy + UNFINISHED, copy)
    disk.sync_folder(dirname(path))
    put_back(disk, path)
    return True


def put_back(disk: Disk, path: str) -> None:
    """Write the tail from its copy, then remove the copy. One that isn't whole was never made durable: it goes."""
    copy, file = disk.open(path + AGAIN), disk.open(path)
    head = copy.read(0, _HEAD.size)
    if len(head) == _HEAD.size:
        start, count, checksum = _HEAD.unpack(head)
        if count == copy.size() - _HEAD.size and checksum == _checksum(copy, _HEAD.size):
            file.truncate(start)
            for data in _chunks(copy, _HEAD.size):
                file.append(data)
            file.sync()
    disk.remove(path + AGAIN)


def _copy(file: File, start: int, copy: File, *, headed: bool) -> None:
    copy.truncate(0)
    if headed:
        copy.append(_HEAD.pack(start, file.size() - start, _checksum(file, start)))
    for data in _chunks(file, start):
        copy.append(data)
    copy.sync()


def _checksum(file: File, start: int) -> int:
    checksum = 0
    for data in _chunks(file, start):
        checksum = crc32c(data, checksum)
    return checksum


def _chunks(file: File, start: int) -> Iterator[bytes]:
    while data := file.read(start, _CHUNK_BYTES):
        yield data
        start += len(data)
