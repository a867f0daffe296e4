"""Rows of a Parquet table as Spark's sink would write them to a topic: a row as JSON, a column as a key.

So a table that is replayed decodes by the schema of the topic that it came from. One thing differs on purpose: of a
time Spark's JSON keeps milliseconds; microseconds are kept here where there are any.
"""

import base64
import datetime as dt
import json
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

Text = Callable[[Any], str]


def json_of(kind: Any) -> Text:
    """What turns values of an Arrow type into JSON."""
    import pyarrow.types

    types: Any = pyarrow.types
    made = _nested(kind, types)
    if made is None:
        made = _plain(kind, types)
    return lambda value: "null" if value is None else made(value)


def _nested(kind: Any, types: Any) -> Text | None:
    if types.is_struct(kind):
        fields = [(_quoted(each.name), each.name, json_of(each.type)) for each in kind]
        return lambda row: "{" + ",".join(f"{name}:{text(row[key])}" for name, key, text in fields) + "}"
    if types.is_map(kind):
        key_text, item = key_of(kind.key_type), json_of(kind.item_type)
        return lambda pairs: "{" + ",".join(f"{_quoted(_str(key_text(k)))}:{item(v)}" for k, v in pairs) + "}"
    if types.is_list(kind) or types.is_large_list(kind):
        each = json_of(kind.value_type)
        return lambda values: "[" + ",".join(map(each, values)) + "]"
    return None


def _plain(kind: Any, types: Any) -> Text:
    if types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if types.is_integer(kind):
        return str
    if types.is_floating(kind):
        digits = _single if types.is_float32(kind) else repr
        return lambda value: _as_java(digits(value)) if math.isfinite(value) else _quoted(_infinite(value))
    if types.is_decimal(kind):
        return _decimal
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return lambda value: _quoted(base64.b64encode(value).decode())
    if types.is_timestamp(kind):
        zone = "Z" if _is_moment(kind) else ""
        return lambda value: f'"{_moment(value).isoformat(timespec=_precision(value))}{zone}"'
    return lambda value: _quoted(str(value))


def key_of(kind: Any) -> Callable[[Any], str | bytes]:
    """What turns values of an Arrow type into a key: Spark's cast to a string."""
    import pyarrow.types

    types: Any = pyarrow.types
    if types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if types.is_floating(kind):
        digits = _single if types.is_float32(kind) else repr
        return lambda value: _as_java(digits(value)) if math.isfinite(value) else _infinite(value)
    if types.is_decimal(kind):
        return _decimal
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return bytes
    if types.is_timestamp(kind):
        return _spaced
    made = _nested(kind, types)
    return str if made is None else made


def _str(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode(errors="replace")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _infinite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _single(value: float) -> str:
    """The shortest digits that are this value in four bytes."""
    for digits in range(1, 9):
        text = f"{value:.{digits}g}"
        if struct.pack("f", float(text)) == struct.pack("f", value):
            return repr(float(text))
    return repr(float(f"{value:.9g}"))


def _as_java(text: str) -> str:
    """Python's digits of a number in the form that Java gives it: 1.0E20 for 1e+20."""
    sign, digits, exponent = Decimal(text).as_tuple()
    written = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + int(exponent) - 1
    minus = "-" if sign else ""
    if written == "0" or -3 <= power < 7:
        return minus + (text.lstrip("-") if "e" not in text else format(Decimal(text).copy_abs(), "f"))
    return f"{minus}{written[0]}.{written[1:] or '0'}E{power}"


def _is_moment(kind: Any) -> bool:
    """Whether a time is one for everybody: nanoseconds without a zone are those of Spark's older files (INT96)."""
    return kind.tz is not None or kind.unit == "ns"


def _moment(value: dt.datetime) -> dt.datetime:
    plain = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
    return dt.datetime(*plain.timetuple()[:6], plain.microsecond)  # a library's own kind has nanoseconds


def _precision(value: dt.datetime) -> str:
    return "microseconds" if value.microsecond % 1000 else "milliseconds"


def _spaced(value: dt.datetime) -> str:
    text = _moment(value).isoformat(sep=" ")
    return text.rstrip("0") if "." in text else text
