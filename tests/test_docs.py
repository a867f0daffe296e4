"""The documentation knows every API, command, flag and file that there is, and its links lead somewhere."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tidelog import __version__
from tidelog.apis import SERVED
from tidelog.apis.shared.broker_facts import FACTS
from tidelog.cli.app import COMMANDS, app
from tidelog.wire.keys import RANGES, ApiKey

TOP = Path(__file__).parents[1]
SOURCES = ("src", "tests", "tools", "bench", "examples")
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md"), *(TOP / "examples").glob("*.md")])


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(command)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from commands(found, f"{name} {child}")
    else:
        yield name, command


EVERY_COMMAND = dict(commands(app, "tidelog"))


@pytest.mark.parametrize("name", EVERY_COMMAND)
def test_every_command_and_flag_is_documented(name: str) -> None:
    page = (TOP / "docs/operating/command-line.md").read_text()
    assert name in page
    for option in EVERY_COMMAND[name].params:
        if isinstance(option, click.Option) and not option.hidden:
            missing = [flag for flag in option.opts if f"`{flag}" not in page]
            assert not missing, f"{name} {missing} is not in docs/operating/command-line.md"


@pytest.mark.parametrize("name", EVERY_COMMAND)
def test_every_command_explains_itself_with_examples(name: str) -> None:
    text = EVERY_COMMAND[name].help or ""
    assert "Examples:" in text, f"{name} --help shows no example"
    examples = [line.strip() for line in text.partition("Examples:")[2].splitlines() if "tidelog" in line]
    assert any(name in example for example in examples)


def test_every_served_api_is_documented_with_its_versions() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \|", (TOP / "docs/apis.md").read_text(), re.MULTILINE)
    documented = [(int(key), name, int(low), int(high)) for key, name, low, high in rows]
    names = {key: "".join(word.capitalize() for word in ApiKey(key).name.split("_")) for key in SERVED}
    assert documented == [(key, names[key], RANGES[key].min, RANGES[key].max) for key in sorted(SERVED)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name} links to {link}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_tests_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    for path in re.findall(r"`(tests/[\w/.]+)`", text):
        assert (TOP / path).exists(), f"{page.name} names {path}, which is not there"


def test_files_that_are_named_exist() -> None:
    """In pages, but for the change log, and in what the code says of itself: mentions go along with a rename."""
    there = [str(path.relative_to(TOP)) for folder in SOURCES for path in (TOP / folder).rglob("*.py")]
    named = [page for page in PAGES if page.name != "CHANGELOG.md"]
    named += [path for folder in ("src", "tools") for path in (TOP / folder).rglob("*.py")]
    missing = [
        f"{page.relative_to(TOP)} names {name}, which is not there"
        for page in named
        for name in re.findall(r"[`( ]((?:\w+/)*[a-z]\w*\.py)\b", page.read_text())
        if not any(path.endswith(f"/{name}") or path == name for path in there)
    ]
    assert missing == []


def test_differences_name_tests_that_exist() -> None:
    text = (TOP / "docs/differences.md").read_text()
    for name in re.findall(r"`(test_\w+)`", text):
        assert any(f"def {name}(" in file.read_text() for file in (TOP / "tests").rglob("test_*.py")), f"no test {name}"


def test_every_difference_names_its_test() -> None:
    entries = re.split(r"\n(?=- \*\*|## )", (TOP / "docs/differences.md").read_text())
    differences = [entry for entry in entries if entry.startswith("- **")]
    assert differences
    assert [entry for entry in differences if "*Test*" not in entry] == []


def test_every_layer_stands_in_the_architecture() -> None:
    page = (TOP / "docs/architecture.md").read_text()
    for folder in sorted((TOP / "src/tidelog").iterdir()):
        if folder.is_dir() and any(folder.glob("*.py")):
            assert f"`{folder.name}/`" in page, f"docs/architecture.md doesn't name {folder.name}/"


def test_every_page_stands_in_the_index() -> None:
    docs = TOP / "docs"
    index = (docs / "README.md").read_text()
    pages = [page.relative_to(docs) for page in docs.rglob("*.md") if page.parent.name != "decisions"]
    assert [str(page) for page in pages if page != Path("README.md") and f"({page})" not in index] == []


def test_every_hop_of_the_walks_is_there() -> None:
    hops = re.findall(r"`([\w/]+\.py)(?::(\w+))?`", (TOP / "docs/walks.md").read_text())
    assert len(hops) > 50
    for path, name in hops:
        if not path.startswith("tests/"):
            source = (TOP / "src/tidelog" / path).read_text()
            assert not name or re.search(rf"^\s*def {name}\(", source, re.MULTILINE), f"{path} has no {name}"


def test_every_fact_of_a_broker_is_documented() -> None:
    page = (TOP / "docs/operating/status.md").read_text()
    assert [name for name in FACTS if f"`{name}`" not in page] == []


def test_the_unit_for_systemd_is_one(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here to ask")
    unit = (TOP / "docs/operating/tidelog.service").read_text()
    assert unit.count("/opt/tidelog/bin/tidelog serve --config /etc/tidelog/tidelog.toml") == 2
    copy = tmp_path / "tidelog.service"
    copy.write_text(unit.replace("/opt/tidelog/bin/tidelog", str(Path(sys.executable).with_name("tidelog"))))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_changelog_and_the_package_agree_on_the_version() -> None:
    assert f"## {__version__}" in (TOP / "CHANGELOG.md").read_text()
    assert f'version = "{__version__}"' in (TOP / "pyproject.toml").read_text()


def test_the_readme_shows_what_make_run_prints() -> None:
    makefile, readme = (TOP / "Makefile").read_text(), (TOP / "README.md").read_text()
    printed = re.findall(r"^\s+'  (.*tidelog (?:topic|produce|consume).*)' \\$", makefile, re.MULTILINE)
    assert len(printed) == 3
    for command in printed:
        assert command in readme


def test_the_commands_of_the_top_level_are_listed_once() -> None:
    assert list(COMMANDS) == app.list_commands(click.Context(app))
