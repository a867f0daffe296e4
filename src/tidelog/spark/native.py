"""walk.py compiled by mypyc on first use, where a C compiler is there; the same file as plain Python where not.

The result lies in a cache folder under the hash of its source, so that it is made once a machine and user, and a new
release makes its own. TIDELOG_NATIVE=off never compiles, =require fails where it can't; the default tries and goes on.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, cast

MODULE = "tidelog_walk"
COMPILE_TIMEOUT_S = 300.0
SOURCE = Path(__file__).with_name("walk.py")

logger = logging.getLogger("tidelog.spark")


class NotCompiled(RuntimeError):
    """There is no compiled decoder, and why."""


@cache
def walker() -> tuple[Any, bool]:
    """The module with `walk` and `Walked`, and whether it is compiled. The first call on a machine takes seconds."""
    mode = os.environ.get("TIDELOG_NATIVE", "auto")
    if mode != "off":
        try:
            return _compiled(), True
        except (NotCompiled, OSError, ImportError) as error:
            if mode == "require":
                raise NotCompiled(f"TIDELOG_NATIVE=require, but {error}") from error
            logger.warning("reading with plain Python, which is about 15 times slower: %s", error)
    from tidelog.spark import walk

    return walk, False


def described() -> str:
    """Which decoder is in use, for people."""
    module, compiled = walker()
    return f"compiled ({module.__file__})" if compiled else "plain Python"


def _compiled() -> Any:
    folder = _folder()
    file = folder / f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not file.exists():
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # others wait for the one that compiles
            if not file.exists():
                _compile(file)
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None:
        raise NotCompiled(f"{file} can't be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return cast(Any, module)


def _compile(file: Path) -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not any(shutil.which(name) for name in (compiler, "cc", "gcc", "clang")):
        raise NotCompiled("there is no C compiler (on Debian: apt-get install gcc libc6-dev)")
    if importlib.util.find_spec("mypyc") is None:
        raise NotCompiled("mypyc is not installed (pip install mypy setuptools)")
    logger.info("compiling the record decoder, once on this machine")
    with tempfile.TemporaryDirectory(dir=file.parent) as work:
        shutil.copyfile(SOURCE, Path(work, f"{MODULE}.py"))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "mypyc", f"{MODULE}.py"],
                cwd=work,
                env=environment,
                capture_output=True,
                text=True,
                timeout=COMPILE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NotCompiled(f"mypyc took longer than {COMPILE_TIMEOUT_S:g} s") from error
        made = Path(work, file.name)
        if done.returncode or not made.exists():
            raise NotCompiled(f"mypyc failed: {(done.stderr or done.stdout).strip()[-500:]}")
        os.replace(made, file)


def _folder() -> Path:
    """The cache's folder for this source, Python and mypyc: ours alone, since code is loaded from it."""
    cached = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache" if os.environ.get("HOME") else None)
    top = Path(cached, "tidelog") if cached else Path(tempfile.gettempdir(), f"tidelog-{os.getuid()}")
    try:
        mypyc = importlib.metadata.version("mypy")
    except importlib.metadata.PackageNotFoundError:
        mypyc = "none"
    told = "\0".join((SOURCE.read_text(), sys.version, mypyc))
    folder = top / "native" / hashlib.sha256(told.encode()).hexdigest()[:20]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise NotCompiled(f"{folder} can be written by others")
    return folder
