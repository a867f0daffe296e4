"""Lines as records: what a line of `tidelog produce` asks to be written."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from tidelog.cli.failure import Failure
from tidelog.cli.record_text import Headers, bytes_from_json, headers_from_json

KEYS = ("key", "key_base64", "value", "value_base64", "headers", "timestamp")
PLACE_KEYS = ("topic", "partition", "offset", "timestamp_type")
"""Where a record stood that `consume --json` wrote; not where it goes to."""
HEADER_KEYS = ("name", "value", "value_base64")


@dataclass(frozen=True, slots=True)
class Line:
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = -1
    timestamp_ms: int = 0


class Reader:
    """Turns lines into records; Failure names the line that is none."""

    def __init__(
        self, key: str | None, separator: str | None, null_text: str | None, headers: Headers, partition: int
    ) -> None:
        self._key = None if key is None else key.encode()
        self._separator = separator.encode() if separator else None
        self._null = null_text.encode() if null_text is not None else None
        self._headers = headers
        self._partition = partition

    def plain_line(self, line: bytes, number: int) -> Line:
        key: bytes | None = self._key
        value: bytes | None = line
        if self._separator is not None:
            key, separator, value = line.partition(self._separator)
            if not separator:
                text = self._separator.decode()
                raise Failure(
                    f"line {number} has no key separator {text!r}", "every line needs one: KEY" + text + "VALUE"
                )
        if self._null is not None:
            key, value = (None if part == self._null else part for part in (key, value))
        return Line(key, value, self._headers, self._partition)

    def json_line(self, line: bytes, number: int) -> Line:
        try:
            given: Any = json.loads(line)
            _check(given)
            return Line(
                bytes_from_json("key", given),
                bytes_from_json("value", given),
                headers_from_json(given.get("headers")) + self._headers,
                self._partition,
                _timestamp_ms(given.get("timestamp")),
            )
        except (ValueError, TypeError) as error:
            raise Failure(
                f"line {number} is no record in JSON: {error}",
                'expected an object such as {"key": "alice", "value": "logged in", "headers": {"source": "web"}}',
            ) from None


def _check(given: Any) -> None:
    if not isinstance(given, dict):
        raise ValueError(f"expected an object, not {json.dumps(given)[:40]}")
    record = cast(dict[str, Any], given)
    _refuse_unknown(record, (*KEYS, *PLACE_KEYS), "")
    for name in ("key", "value"):
        if name in record and f"{name}_base64" in record:
            raise ValueError(f"it has both {name} and {name}_base64")
    if not record.keys() & set(KEYS[:4]):
        raise ValueError("it has neither key nor value (null is one: a tombstone)")
    headers = record.get("headers")
    if headers is not None and not isinstance(headers, dict | list):
        raise ValueError("headers are an object, or a list of objects")
    for header in cast(list[Any], headers) if isinstance(headers, list) else ():
        if not isinstance(header, dict) or not isinstance(cast(Any, header).get("name"), str):
            raise ValueError('a header needs a name: {"name": ..., "value": ...}')
        _refuse_unknown(cast(dict[str, Any], header), HEADER_KEYS, " in a header")


def _refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"unknown key {name}{where}; known are {', '.join(known)}")


def _timestamp_ms(given: Any) -> int:
    if given is None:
        return 0
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 63:
        raise ValueError(f"timestamp {json.dumps(given)}: expected milliseconds since 1970")
    return given
