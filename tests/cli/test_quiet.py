"""The log of a broker under attack stays readable."""

import logging

from tidelog.cli.quiet import TEMPLATES_MAX, TOLD_MAX, WINDOW_S, Quiet


def line(message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("tidelog.server", logging.WARNING, __file__, 1, message, args, None)


def test_lines_of_one_kind_are_told_some_times_and_counted_then():
    now = 100.0
    quiet = Quiet(lambda: now)
    told = [quiet.filter(line("closed the connection of %s", number)) for number in range(500)]
    assert told == [True] * TOLD_MAX + [False] * (500 - TOLD_MAX)
    now += WINDOW_S
    last = line("closed the connection of %s", 7)
    assert quiet.filter(last)
    assert last.getMessage() == f"closed the connection of 7 ({500 - TOLD_MAX} more like this were left out in 10 s)"


def test_other_kinds_are_not_touched():
    quiet = Quiet(lambda: 0.0)
    for _ in range(500):
        quiet.filter(line("a flood"))
    other = line("went offline: %s", "disk")
    assert quiet.filter(other)
    assert other.getMessage() == "went offline: disk"


def test_messages_without_end_take_no_memory():
    quiet = Quiet(lambda: 0.0)
    kinds = [f"made up {number:b}".translate(str.maketrans("01", "xy")) for number in range(3 * TEMPLATES_MAX)]
    assert all(quiet.filter(line(kind)) for kind in kinds)
    told = [sum(quiet.filter(line(kind)) for _ in range(TOLD_MAX)) for kind in kinds]
    assert told == [TOLD_MAX - 1] * TEMPLATES_MAX + [TOLD_MAX] * 2 * TEMPLATES_MAX, "those that it doesn't know pass"
