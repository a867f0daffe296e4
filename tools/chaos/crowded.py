"""`python -m tools.chaos.crowded`: the command `tidelog` on a disk that has no room while a file is there."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog.cli import main
from tidelog.env.real_disk import RealDisk, RealFile

FULL = "TIDELOG_CHAOS_FULL"
"""The variable that names the file."""


def crowd(flag: Path) -> None:
    """Whatever makes a file longer fails while the flag is there."""

    def if_there_is_room(write: Callable[..., Any]) -> Callable[..., Any]:
        def checked(target: Any, *arguments: Any, **named: Any) -> Any:
            if flag.exists():
                raise OSError(errno.ENOSPC, "No space left on device", str(flag))
            return write(target, *arguments, **named)

        return checked

    free_bytes: Any = RealDisk.free_bytes
    changed: list[tuple[Any, str]] = [
        (RealFile, "append"),
        (RealFile, "append_all"),
        (RealDisk, "make_fixed"),
        (RealDisk, "write_whole"),
    ]
    for owner, name in changed:
        setattr(owner, name, if_there_is_room(getattr(owner, name)))
    RealDisk.free_bytes = lambda self, path: 0 if flag.exists() else free_bytes(self, path)


if __name__ == "__main__":
    crowd(Path(os.environ.pop(FULL)))
    main()
