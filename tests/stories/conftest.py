"""A Tidelog of one's own for each story."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import Tidelog
from tests.stories.groups.band import QUICK_GROUPS

DISK_BYTES = 16 << 20


@pytest.fixture
def tidelog(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path / "data") as broker:
        yield broker


@pytest.fixture(scope="session")
def groups_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose groups notice absence soon; COMPAT_BOOTSTRAP names another, such as an Apache Kafka."""
    other = os.environ.get("COMPAT_BOOTSTRAP")
    if other:
        yield other
        return
    with Tidelog(tmp_path_factory.mktemp("groups") / "data", QUICK_GROUPS) as broker:
        yield broker.bootstrap


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs takes root")
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"a tmpfs can't be mounted here: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
