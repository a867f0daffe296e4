"""Tidiness as a test: sizes of files and functions, names, leftovers, and nothing of one machine in the tree."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
SOURCES = sorted((TOP / "src").rglob("*.py"))
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 90
BAD_NAMES = ("Manager", "Helper", "Util", "Base", "Impl")
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATHS = re.compile(r"/(work|farm)/(main|shared|steering|kafka-)|/tmp/bash_jobs|/root/")


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in SOURCES}


def test_files_stay_small() -> None:
    # The declarations of messages are one table each, not code to read.
    long = {path: len(path.read_text().splitlines()) for path in SOURCES if "messages" not in path.parts}
    assert {str(path): lines for path, lines in long.items() if lines > FILE_LINES_MAX} == {}


def test_functions_stay_short(trees: dict[Path, ast.Module]) -> None:
    long = {
        f"{path.relative_to(TOP)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path, tree in trees.items()
        for node in functions(tree)
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_every_module_says_what_it_is(trees: dict[Path, ast.Module]) -> None:
    assert [str(path) for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_every_package_is_one() -> None:
    # Without its __init__ a folder is passed over by the check of layers.
    folders = {path.parent for path in SOURCES}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists() and folder.name != "src"] == []


def test_names_come_from_the_domain(trees: dict[Path, ast.Module]) -> None:
    classes = [
        (path, node.name) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    assert [f"{path}: {name}" for path, name in classes if name.endswith(BAD_NAMES)] == []


def test_the_broker_has_no_async_functions(trees: dict[Path, ast.Module]) -> None:
    found = [
        f"{path}:{node.lineno}" for path, tree in trees.items() for node in functions(tree)
        if isinstance(node, ast.AsyncFunctionDef)
    ]  # fmt: skip
    assert found == []


def test_nothing_was_left_for_later() -> None:
    found = [
        f"{path.relative_to(TOP)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LEFTOVERS.search(line)
    ]
    assert found == []


def test_no_path_of_one_machine_stands_in_the_tree() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git clone")
    found = [
        name
        for name in listed.stdout.splitlines()
        if name != "tests/test_tidy.py"
        and (TOP / name).is_file()
        and MACHINE_PATHS.search((TOP / name).read_text(errors="replace"))
    ]
    assert found == []
