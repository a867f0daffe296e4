"""Tables for people."""

import pytest

from tidelog.cli.show import show_table


def test_a_cell_tells_the_terminal_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["GROUP", "LAG"], [["g\n\x1b[2Jh", 5], [None, 0]], right=[1])
    shown = capsys.readouterr().out
    assert "g\\n\\x1b[2Jh" in shown
    assert "\x1b[2J" not in shown
