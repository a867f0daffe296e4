"""Somebody else who writes to the same file system, and syncs nothing.

`python -m bench.disk_writer FOLDER MB_PER_S MB` writes at that rate until so many MB are written or its standard input
is closed, to one file after the other; the one before is removed. In the end all are, and it prints the bytes and the
seconds as JSON.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.programs import BenchError

MB = 1_000_000
FILE_BYTES = 1000 * MB
ENDS_WITHIN_S = 60.0


class DiskWriter:
    """It, seen from the benchmark."""

    def __init__(self, folder: Path, mb_per_s: int, mb_max: int) -> None:
        command = [sys.executable, "-m", "bench.disk_writer", str(folder), str(mb_per_s), str(mb_max)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end(self) -> float:
        """The MB a second that it really wrote."""
        try:
            out, _ = self._process.communicate(b"", ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise BenchError("the other writer didn't end") from None
        done = json.loads(out)
        return done["bytes"] / MB / done["seconds"]


def write(folder: Path, mb_per_s: int, mb_max: int, over: threading.Event) -> tuple[int, float]:
    chunk, written, number = os.urandom(MB), 0, 0
    began = time.monotonic()
    paths = [folder / "other-writer-0", folder / "other-writer-1"]
    file = os.open(paths[0], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        while written < mb_max * MB and not over.wait(max(0.0, began + written / mb_per_s / MB - time.monotonic())):
            if written // FILE_BYTES > number:
                number += 1
                os.close(file)
                file = os.open(paths[number % 2], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                paths[(number + 1) % 2].unlink()
            written += os.write(file, chunk)
        return written, time.monotonic() - began
    finally:
        os.close(file)
        for path in paths:
            path.unlink(missing_ok=True)


def main() -> None:
    folder, mb_per_s, mb_max = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    written, seconds = write(folder, mb_per_s, mb_max, over)
    print(json.dumps({"bytes": written, "seconds": seconds}))


if __name__ == "__main__":
    main()
