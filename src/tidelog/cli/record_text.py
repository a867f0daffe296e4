"""Records as text: how `consume` writes them and `produce` reads them, in lines and in JSON.

In JSON, bytes that are UTF-8 stand as text under `key`, `value` and in headers; others as base64 under `key_base64`
and so on. What `consume --json` writes, `produce --input json` reads back unchanged.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, cast

Headers = list[tuple[str, bytes | None]]


def bytes_to_json(name: str, value: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {name + "_base64": base64.b64encode(cast(bytes, value)).decode()}


def bytes_from_json(name: str, source: Mapping[str, Any]) -> bytes | None:
    """The bytes under `name`; values other than text (numbers, objects) are taken as the JSON they are."""
    encoded = source.get(name + "_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    value = source.get(name)
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def headers_to_json(headers: Headers) -> list[dict[str, str | None]]:
    """A list, since a header's name may stand there twice and order counts."""
    return [{"name": name, **bytes_to_json("value", value)} for name, value in headers]


def headers_from_json(given: Any) -> Headers:
    """Headers as `headers_to_json` writes them, or a plain object of names and values."""
    if isinstance(given, dict):
        plain = cast(dict[str, Any], given)
        return [(name, bytes_from_json("value", {"value": value})) for name, value in plain.items()]
    listed = cast(list[dict[str, Any]], given or [])
    return [(header["name"], bytes_from_json("value", header)) for header in listed]


def printable(value: bytes | None) -> str:
    """For a person: text as it is, other bytes with backslashes, null as `null`."""
    return "null" if value is None else value.decode(errors="backslashreplace")
