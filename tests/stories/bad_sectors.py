"""`python -m tests.stories.bad_sectors`: the command `tidelog` on a disk with sectors that can't be read.

Which ones, is in the file `bad` of the data folder: a path below the folder, the first byte, how many; none without it.
"""

import errno
import os
import sys
from pathlib import Path
from typing import Any

from tidelog.cli import main
from tidelog.env import real_disk
from tidelog.env.real_disk import RealFile
from tidelog.log import unreadable

FOLDER = Path(sys.argv[sys.argv.index("--data") + 1])
BAD = FOLDER / "bad"


def spoil() -> None:
    send: Any = RealFile.send
    pread = os.pread

    def bad_from(path: str) -> tuple[int, int]:
        if not BAD.exists():
            return 0, 0
        name, first, count = BAD.read_text().split()
        return (int(first), int(first) + int(count)) if path == str(FOLDER / name) else (0, 0)

    def send_or_fail(file: RealFile, sock: Any, pos: int, count: int) -> int:
        first, end = bad_from(file.path)
        if first <= pos < end:
            raise OSError(errno.EIO, "Input/output error")
        return send(file, sock, pos, min(count, first - pos) if pos < first < pos + count else count)

    def pread_or_fail(fd: int, count: int, pos: int) -> bytes:
        first, end = bad_from(os.readlink(f"/proc/self/fd/{fd}"))
        if first <= pos < end:
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, min(count, first - pos) if pos < first < pos + count else count, pos)

    RealFile.send = send_or_fail  # pyright: ignore[reportAttributeAccessIssue]
    real_disk.os.pread = pread_or_fail
    unreadable.AGAIN_MS = 200
    real_disk.REMAP_BYTES = 1 << 40  # no mappings: nothing here can make one fail


if __name__ == "__main__":
    spoil()
    main()
