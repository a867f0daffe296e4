"""`python -m tests.stories.crowded_disk`: the command `tidelog` on a disk that has no room every now and then.

The first write to each partition of a user's topic finds none, and so does every tenth after it.
"""

import errno
from collections import Counter
from pathlib import Path
from typing import Any

from tidelog.cli import main
from tidelog.env.real_disk import RealFile

EVERY = 10


def crowd() -> None:
    append: Any = RealFile.append
    writes: Counter[str] = Counter()

    def append_if_there_is_room(file: RealFile, data: bytes) -> None:
        folder = Path(file.path).parent.name
        if file.path.endswith(".log") and not folder.startswith("__"):
            writes[folder] += 1
            if writes[folder] % EVERY == 1:
                raise OSError(errno.ENOSPC, "No space left on device", file.path)
        append(file, data)

    RealFile.append = append_if_there_is_room


if __name__ == "__main__":
    crowd()
    main()
