"""Copies of the work tree in which modules are changed and tests run: the work tree itself is never touched.

Each job has a copy, a folder for temporary files and a group of processes of its own, so that jobs don't disturb each
other. However a run ends, nothing is left: its processes die with it, and what a killed one left of its folders is
removed by the next.
"""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

TOP = Path(__file__).parents[2]
PREFIX = "tidelog-mutants-"
LEFT_BEHIND = shutil.ignore_patterns(
    ".git", ".venv", ".hypothesis", ".pytest_cache", ".ruff_cache", ".import_linter_cache", "__pycache__", "data"
)
DATA_BYTES_MAX = 4 << 30
"""A change that makes a loop fill the memory is noticed by its test, and not by everybody else."""
PR_SET_PDEATHSIG = 1
PASSED, FAILED = 0, 1  # as pytest says; anything else means that it could not run the tests


@contextmanager
def workshop() -> Iterator[Path]:
    """A folder for one run; folders of runs that were killed go."""
    top = Path(tempfile.gettempdir())
    for old in top.glob(f"{PREFIX}*-*"):
        pid = old.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(old, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


class Tree:
    """A copy of the work tree. One run of tests at a time: `start`, then `ended` until that is not None."""

    def __init__(self, folder: Path) -> None:
        self._top = folder / "tree"
        self._scratch = folder / "tmp"
        self._output = folder / "output"
        self._process: subprocess.Popen[bytes] | None = None
        self._changed: tuple[Path, bytes] | None = None
        self._began = self._deadline = 0.0
        self._writes = 0
        shutil.copytree(TOP, self._top, ignore=LEFT_BEHIND)
        (self._top / ".venv").symlink_to(TOP / ".venv")

    def start(
        self, tests: Sequence[str], limit_s: float, test_limit_s: float, *, changed: tuple[str, bytes] | None = None
    ) -> None:
        """Run the tests until one fails, for so long at most, with one module changed."""
        if changed is not None:
            path = self._top / changed[0]
            self._changed = path, path.read_bytes()
            self._write(path, changed[1])
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:randomly", "-p", "no:cacheprovider"),
            *("-m", "not long", "--hypothesis-seed=0", f"--timeout={test_limit_s:.0f}"),
            *(f"--basetemp={self._scratch}/pytest", *tests),
        ]
        environment = {**os.environ, "PYTHONPATH": f"{self._top}/src", "TMPDIR": str(self._scratch)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a broker that is compiled anew is not ready in time
        self._began = time.monotonic()
        self._deadline = self._began + limit_s
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self._top,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_bound,
            )

    def ended(self) -> tuple[int, float] | None:
        """Pytest's exit code (-1: it took too long) and the seconds it took; the module is as it was again."""
        assert self._process is not None
        now = time.monotonic()
        code = self._process.poll()
        if code is None and now < self._deadline:
            return None
        self.stop()
        return (-1 if code is None else code), now - self._began

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def stop(self) -> None:
        """End what is running, and whatever that started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        if self._changed is not None:
            self._write(*self._changed)
            self._changed = None

    def _write(self, path: Path, source: bytes) -> None:
        """With a time that no other version of it had: Python knows compiled files by time and size."""
        path.write_bytes(source)
        self._writes += 1
        os.utime(path, (self._writes, self._writes))


def _bound() -> None:
    """In the new process, before anything else: it dies with this one, and has no more memory than it should need."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
