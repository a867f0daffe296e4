"""Every declared message, and strategies for their values, derived from the declarations."""

import importlib
import pkgutil
from functools import cache
from typing import Any

from hypothesis import strategies as st

import tidelog.wire.messages
import tidelog.wire.records
from tidelog.wire.errors import ErrorCode
from tidelog.wire.schema import Array, Blob, Field, Fixed, Kind, Structure, Text, schema

_FIXED: dict[str, st.SearchStrategy[Any]] = {
    "b": st.integers(-(2**7), 2**7 - 1),
    "h": st.integers(-(2**15), 2**15 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "q": st.integers(-(2**63), 2**63 - 1),
    "H": st.integers(0, 2**16 - 1),
    "I": st.integers(0, 2**32 - 1),
    "?": st.booleans(),
    "d": st.floats(allow_nan=False),
    "16s": st.binary(min_size=16, max_size=16),
}


def declared_messages() -> list[type]:
    """All requests, responses and records, in the order of their names."""
    found: dict[str, type] = {}
    for package in (tidelog.wire.messages, tidelog.wire.records):
        for module_info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{module_info.name}")
            found |= {name: value for name, value in vars(module).items() if _is_message(value)}
    return [found[name] for name in sorted(found)]


def _is_message(value: object) -> bool:
    return isinstance(value, type) and "__wire__" in value.__dict__ and schema(value).key is not None


def each_version() -> list[tuple[type, int]]:
    """Each declared message in each of its versions."""
    return [
        (cls, version)
        for cls in declared_messages()
        for version in range(schema(cls).versions.first, schema(cls).versions.last + 1)
    ]


def version_id(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"v{value}"


@cache
def values(cls: type, version: int, *, tame: bool = False) -> st.SearchStrategy[Any]:
    """Objects of `cls` that `version` can carry. `tame` ones have error codes and times that other libraries accept."""
    fields = {field.name: _field(field, version, tame) for field in schema(cls).fields if version in field.versions}
    return st.builds(cls, **fields)


def _field(field: Field, version: int, tame: bool) -> st.SearchStrategy[Any]:
    strategy = _tame(field) if tame else None
    if strategy is None:
        strategy = _kind(field.kind, version, tame)
    return st.none() | strategy if version in field.nullable else strategy


def _tame(field: Field) -> st.SearchStrategy[Any] | None:
    if field.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if field.kind in (Fixed("i"), Fixed("q")) and (field.name.endswith("_ms") or "time" in field.name):
        return st.integers(0, 2**31 - 1)
    return None


def _kind(kind: Kind, version: int, tame: bool) -> st.SearchStrategy[Any]:
    match kind:
        case Fixed(code):
            return _FIXED[code]
        case Text():
            return st.text(max_size=6)
        case Blob(view):
            blob = st.binary(max_size=40)
            return blob.map(memoryview) if view else blob
        case Structure(cls):
            return values(cls, version, tame=tame)
        case Array(of):
            return st.lists(_kind(of, version, tame), max_size=3)
