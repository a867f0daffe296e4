"""Places to start from, as a person writes them."""

from datetime import UTC, datetime

import pytest

from tidelog.client import Start

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start("beginning")),
        ("earliest", Start("beginning")),
        ("end", Start("end")),
        ("latest", Start("end")),
        ("0", Start("offset", 0)),
        ("42", Start("offset", 42)),
        ("9223372036854775807", Start("offset", 2**63 - 1)),
        ("-10", Start("last", 10)),
        ("90s", Start("time", NOW_MS - 90_000)),
        ("15m", Start("time", NOW_MS - 15 * 60_000)),
        ("2h", Start("time", NOW_MS - 2 * 3_600_000)),
        ("1d", Start("time", NOW_MS - 86_400_000)),
        ("2026-01-31T12:00+00:00", Start("time", NOW_MS)),
        ("2026-01-31T13:00+01:00", Start("time", NOW_MS)),
        ("1969-01-01T00:00+00:00", Start("time", 0)),
    ],
)
def test_every_way_to_say_it_is_understood(text: str, start: Start) -> None:
    assert Start.parse(text, NOW) == start


@pytest.mark.parametrize(
    "text", ["", "yesterday", "--1", "1.5", "10w", "9223372036854775808", "9" * 30 + "d", "2026-13-01"]
)
def test_what_is_none_is_told_with_what_there_is(text: str) -> None:
    with pytest.raises(ValueError, match="is no place to start: use beginning"):
        Start.parse(text, NOW)
