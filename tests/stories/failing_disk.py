"""`python -m tests.stories.failing_disk`: the command `tidelog` on a disk whose syncs fail.

They do once there is a file `failing` in the folder of the metadata log (`metadata.log.dir`), or else in the data
folder; where a folder in there is named in that file, in this one only.
"""

import errno
import os
import sys
from pathlib import Path

from tidelog.cli import main
from tidelog.env import real_disk

NAME = "--set=metadata.log.dir="
NAMED = [Path(argument[len(NAME) :]) for argument in sys.argv if argument.startswith(NAME)]
FOLDER = NAMED[0] if NAMED else Path(sys.argv[sys.argv.index("--data") + 1])
FAILING = FOLDER / "failing"


def fail() -> None:
    sync = os.fdatasync

    def sync_or_fail(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if FAILING.exists() and path.is_relative_to(FOLDER / FAILING.read_text()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    real_disk.os.fdatasync = sync_or_fail


if __name__ == "__main__":
    fail()
    main()
