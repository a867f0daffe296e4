"""walk.py and pack.py compiled by mypyc on first use, where a C compiler is there; plain Python where not.

The result lies in a cache folder under the hash of its source, so that it is made once a machine and user, and a new
release makes its own. TIDELOG_NATIVE=off never compiles, =require fails where it can't; the default tries and goes on.
"""

import fcntl
import hashlib
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, cast

COMPILE_TIMEOUT_S = 300.0
SOURCES = {"walk": "source", "pack": "sink"}
"""What is compiled, and the package that it lies in."""

logger = logging.getLogger("tidelog.spark")


class NotCompiled(RuntimeError):
    """There is no compiled decoder, and why."""


def walker() -> tuple[Any, bool]:
    """The module with `walk` and `Walked`, and whether it is compiled."""
    return loaded("walk")


def packer() -> tuple[Any, bool]:
    """The module with `pack` and `Partitioned`, and whether it is compiled."""
    return loaded("pack")


@cache
def loaded(name: str) -> tuple[Any, bool]:
    """One of the two, and whether it is compiled. The first call on a machine takes seconds."""
    mode = os.environ.get("TIDELOG_NATIVE", "auto")
    if mode != "off":
        try:
            return _compiled(name), True
        except (NotCompiled, OSError, ImportError, ValueError) as error:  # ValueError: made for another librt
            if mode == "require":
                raise NotCompiled(f"TIDELOG_NATIVE=require, but {error}") from error
            logger.warning("using plain Python, which is about 15 times slower: %s", error)
    return importlib.import_module(f"tidelog.spark.{SOURCES[name]}.{name}"), False


def described() -> str:
    """Which decoder is in use, for people."""
    module, compiled = walker()
    return f"compiled ({module.__file__})" if compiled else "plain Python"


def _compiled(name: str) -> Any:
    source = Path(__file__).parent / SOURCES[name] / f"{name}.py"
    module_name = f"tidelog_{name}"
    folder = _folder(source)
    file = folder / f"{module_name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not file.exists():
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # others wait for the one that compiles
            if not file.exists():
                _compile(source, module_name, file)
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise NotCompiled(f"{file} can't be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return cast(Any, module)


def _compile(source: Path, module_name: str, file: Path) -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not any(shutil.which(name) for name in (compiler, "cc", "gcc", "clang")):
        raise NotCompiled("there is no C compiler (on Debian: apt-get install gcc libc6-dev)")
    if importlib.util.find_spec("mypyc") is None:
        raise NotCompiled("mypyc is not installed (pip install mypy setuptools)")
    logger.info("compiling %s, once on this machine", source.name)
    with tempfile.TemporaryDirectory(dir=file.parent) as work:
        shutil.copyfile(source, Path(work, f"{module_name}.py"))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "mypyc", f"{module_name}.py"],
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


def _folder(source: Path) -> Path:
    """The cache's folder for this source, Python, mypyc and librt: ours alone, since code is loaded from it.

    Where the home folder can't be written to, as in many clusters' containers, it is one for temporary files.
    """
    identity = "\0".join((source.read_text(), sys.version, _version("mypy"), _version("librt")))
    name = hashlib.sha256(identity.encode()).hexdigest()[:20]
    cached = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache" if os.environ.get("HOME") else None)
    if cached:
        try:
            return _private(Path(cached, "tidelog", "native", name))
        except OSError as error:
            logger.info("%s can't be used: %s", cached, error)
    return _private(_private(Path(tempfile.gettempdir(), f"tidelog-{os.getuid()}")) / name)


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or not stat.S_ISDIR(status.st_mode):
        raise NotCompiled(f"{folder} can be written by others")
    return folder


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
