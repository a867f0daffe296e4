"""Records as text: what `consume --json` writes, `produce --input json` reads back."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.record_text import bytes_from_json, bytes_to_json, headers_from_json, headers_to_json, printable
from tidelog.cli.show import human_bytes
from tidelog.client.start import Start

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@given(st.none() | st.binary() | st.text().map(str.encode))
def test_any_bytes_survive_json(value: bytes | None) -> None:
    assert bytes_from_json("value", json.loads(json.dumps(bytes_to_json("value", value)))) == value


@given(st.lists(st.tuples(st.text(), st.none() | st.binary())))
def test_any_headers_survive_json(headers: list[tuple[str, bytes | None]]) -> None:
    assert headers_from_json(json.loads(json.dumps(headers_to_json(headers)))) == headers


def test_json_written_by_hand_is_understood() -> None:
    assert bytes_from_json("value", {"value": {"id": 7}}) == b'{"id": 7}'
    assert bytes_from_json("value", {"value": 7}) == b"7"
    assert headers_from_json({"a": "1", "b": None}) == [("a", b"1"), ("b", None)]
    assert headers_from_json(None) == []


def test_people_see_text_bytes_and_null() -> None:
    assert [printable(value) for value in (b"tide", b"\xff\x00", None)] == ["tide", "\\xff\x00", "null"]


def test_sizes_are_readable() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1536, 10 * 2**20, 3 * 2**30, 5 * 2**40)] == [
        "0 B",
        "1023 B",
        "1.5 KB",
        "10.0 MB",
        "3.0 GB",
        "5.0 TB",
    ]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start("beginning")),
        ("end", Start("end")),
        ("42", Start("offset", 42)),
        ("-10", Start("last", 10)),
        ("15m", Start("time", int(NOW.timestamp() * 1000) - 15 * 60_000)),
        ("2h", Start("time", int(NOW.timestamp() * 1000) - 2 * 3_600_000)),
        ("2026-01-31T11:00+00:00", Start("time", int(NOW.timestamp() * 1000) - 3_600_000)),
    ],
)
def test_a_place_to_start_is_read(text: str, start: Start) -> None:
    assert Start.parse(text, NOW) == start


@pytest.mark.parametrize("text", ["", "middle", "-", "5x", "1.5", "2026-13-01"])
def test_a_place_that_is_none_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"use beginning \(earliest\), end \(latest\), an offset"):
        Start.parse(text, NOW)
