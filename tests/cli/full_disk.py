"""`python -m tests.cli.full_disk`: the command `tidelog` on a disk that has no room for users' records."""

import errno
from pathlib import Path
from typing import Any

from tidelog.cli import main
from tidelog.env.real_disk import RealDisk, RealFile


def fill() -> None:
    append: Any = RealFile.append

    def append_if_there_is_room(file: RealFile, data: bytes) -> None:
        if file.path.endswith(".log") and not Path(file.path).parent.name.startswith("__"):
            raise OSError(errno.ENOSPC, "No space left on device", file.path)
        append(file, data)

    RealFile.append = append_if_there_is_room
    RealDisk.free_bytes = lambda self, folder: 0


if __name__ == "__main__":
    fill()
    main()
