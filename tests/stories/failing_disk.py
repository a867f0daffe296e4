"""`python -m tests.stories.failing_disk`: the command `tidelog` on a disk whose syncs fail.

They do once there is a file `failing` in the folder of the metadata log (`metadata.log.dir`).
"""

import errno
import os
import sys
from pathlib import Path

from tidelog.cli import main
from tidelog.env import real_disk

NAME = "--set=metadata.log.dir="
FOLDER = next(Path(argument[len(NAME) :]) for argument in sys.argv if argument.startswith(NAME))


def fail() -> None:
    sync = os.fdatasync

    def sync_or_fail(fd: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{fd}")).is_relative_to(FOLDER) and (FOLDER / "failing").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    real_disk.os.fdatasync = sync_or_fail


if __name__ == "__main__":
    fail()
    main()
