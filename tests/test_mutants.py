"""The mutation run: what it changes, what it never does, and that its table names modules and tests that are there."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools.mutants.__main__ import main
from tools.mutants.changes import changes, conceivable
from tools.mutants.modules import KNOWN, MODULES, Known, Module
from tools.mutants.trees import TOP

SOURCE = b'''"""A module about 1 and 2."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nowhere import Thing


class Quay:
    """Holds 3 boats."""

    __slots__ = ("boats", "most")

    def __init__(self, most: "int | None" = None) -> None:
        self.boats = 0
        self.most: list[int] = [7]

    def moor(self, count: int) -> bool:
        log.info("%d boats, %d", count, 5)
        if count > 3:
            log.warning("many")
        log.append(count, 1 << 20)
        if count > 0 and self.boats + count <= 9:
            self.boats += count
            raise ValueError(f"{count + 1} are there")
        assert count != 2
        return self.boats is None
'''


def made() -> list[str]:
    """Each change as the lines that it makes."""
    before = SOURCE.decode().splitlines()
    found = []
    for change in changes(SOURCE):
        after = change.apply(SOURCE).decode().splitlines()
        assert len(after) == len(before)
        found.append(next(new.strip() for old, new in zip(before, after, strict=True) if old != new))
    return found


def test_every_slip_is_made_once_and_nothing_that_nobody_could_tell() -> None:
    assert sorted(made()) == sorted(
        [
            "self.boats = 1",
            "self.most: list[int] = [8]",
            "self.most: list[int] = [6]",
            "pass",
            "if count >= 0 and self.boats + count <= 9:",
            "if count > 1 and self.boats + count <= 9:",
            "if count > 0 or self.boats + count <= 9:",
            "if count > 0 and self.boats - count <= 9:",
            "if count > 0 and self.boats + count < 9:",
            "if count > 0 and self.boats + count <= 10:",
            "if count > 0 and self.boats + count <= 8:",
            "if (not (count > 0 and self.boats + count <= 9)):",
            "self.boats -= count",
            "pass",
            "pass",
            "return self.boats is not None",
        ]
    )


def test_a_known_one_is_known_by_its_text_and_what_stands_before_it() -> None:
    lines = SOURCE.decode().splitlines()
    raised = next(
        change for change in changes(SOURCE) if change.kind == "left out" and "raise" in lines[change.line - 1]
    )
    assert Known("x", "raise ValueError", "why", behind="self.boats += count").matches(lines, raised)
    assert not Known("x", "raise ValueError", "why", behind="something else").matches(lines, raised)
    assert not Known("x", "raise ValueError", "why", kind="comparison").matches(lines, raised)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_the_table_names_what_is_there(module: Module) -> None:
    assert (TOP / module.file).is_file()
    paths = [test for test in module.tests if test.startswith("tests/")]
    assert paths
    assert [path for path in paths if not (TOP / path).exists()] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_what_is_known_to_make_no_difference_is_still_there_and_says_why(module: Module) -> None:
    source = (TOP / module.file).read_bytes()
    lines, found = source.decode().splitlines(), conceivable(source)
    for known in KNOWN:
        if known.path == module.path:
            assert any(known.matches(lines, change) for change in found), known
            assert known.reason


def test_all_that_is_known_is_of_modules_that_are_run() -> None:
    assert {known.path for known in KNOWN} <= {module.path for module in MODULES}


def test_a_module_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--module", "nowhere.py"]) == 2
    assert "nowhere.py" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_tells_the_score_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.mutants", "--module", "raft/quorum.py", "--count", "3", "--jobs", "2"]
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    assert "killed   3 of   3" in done.stdout, done.stdout + done.stderr
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
