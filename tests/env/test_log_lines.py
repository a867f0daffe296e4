"""What is logged stands in one line, whatever is in it."""

import io
import logging
from collections.abc import Iterator

import pytest

from tidelog.env.log_lines import MESSAGE_CHARACTERS_MAX, LineFormatter, printable

FORGED = "2026-01-01 00:00:00,000 ERROR tidelog: all is lost"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    logger = logging.getLogger("lines")
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("ö € 日本", "ö € 日本"),
        ("a\nb\r\nc\td", "a\\nb\\r\\nc\\td"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("nul \0 del \x7f csi \x9b nel \x85", "nul \\x00 del \\x7f csi \\x9b nel \\x85"),
        ("\u2028 \u2029 \u202e \u2066", "\\u2028 \\u2029 \\u202e \\u2066"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_name_forges_no_line(written: io.StringIO) -> None:
    logging.getLogger("lines").warning("group %s is empty", f"g\n{FORGED}")
    lines = written.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith(f"WARNING lines: group g\\n{FORGED} is empty")


def test_a_traceback_keeps_its_lines_and_none_of_them_looks_like_one_of_the_log(written: io.StringIO) -> None:
    try:
        raise ValueError(f"no topic t\n{FORGED}\x1b[31m")
    except ValueError:
        logging.getLogger("lines").exception("it failed for %s", "t\n")
    first, *trace = written.getvalue().splitlines()
    assert first.endswith("ERROR lines: it failed for t\\n")
    assert trace[0] == "    Traceback (most recent call last):"
    assert len(trace) > 3
    assert all(line.startswith("    ") for line in trace)
    assert trace[-1] == f"    {FORGED}\\x1b[31m"


def test_a_long_message_loses_its_middle(written: io.StringIO) -> None:
    logging.getLogger("lines").warning("%s the end", "x" * 1_000_000)
    assert MESSAGE_CHARACTERS_MAX < len(written.getvalue()) < MESSAGE_CHARACTERS_MAX + 100
    assert written.getvalue().endswith("x the end\n")


def test_other_handlers_see_the_message_as_it_is(written: io.StringIO, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("lines").warning("a%sb", "\n")
    assert caplog.records[-1].getMessage() == "a\nb"
