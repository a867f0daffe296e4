"""Filters that Spark hands down in batch queries: those on topic, partition, offset and timestamp narrow what is read.

Each is handed back too, so that Spark applies it again: narrowing only has to leave out nothing that passes.
"""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)


@dataclass(slots=True)
class Narrowed:
    """What filters leave: None is everything."""

    topics: set[str] | None = None
    partitions: set[int] | None = None
    first_offset: int = 0
    end_offset: int | None = None
    since_ms: int | None = None
    notes: list[str] = field(default_factory=list[str])

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what helps, and give all back."""
        for each in filters:
            self._take(each)
        return filters

    def keeps(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )

    def _take(self, each: Filter) -> None:
        column = getattr(each, "attribute", ("",))
        name, value = column[0] if len(column) == 1 else "", getattr(each, "value", None)
        if name == "topic":
            self.topics = _met(self.topics, _values(each, value, str))
        elif name == "partition":
            self.partitions = _met(self.partitions, _values(each, value, int))
        elif name == "offset" and isinstance(value, int):
            self._offset(each, value)
        elif name == "timestamp" and isinstance(value, dt.datetime):
            self._timestamp(each, value)

    def _offset(self, each: Filter, value: int) -> None:
        low, high = _bounds(each, value)
        if low is not None:
            self.first_offset = max(self.first_offset, low)
        if high is not None:
            self.end_offset = high if self.end_offset is None else min(self.end_offset, high)

    def _timestamp(self, each: Filter, value: dt.datetime) -> None:
        """Only a lower bound helps: times need not grow with offsets, so older ones may follow newer ones."""
        if isinstance(each, GreaterThan | GreaterThanOrEqual | EqualTo):
            moment = value if value.tzinfo is not None else value.astimezone()
            since_ms = int(moment.timestamp() * 1000)
            self.since_ms = since_ms if self.since_ms is None else max(self.since_ms, since_ms)


def _values(each: Filter, value: Any, kind: type) -> set[Any] | None:
    if isinstance(each, EqualTo | EqualNullSafe) and isinstance(value, kind):
        return {value}
    if isinstance(each, In) and all(isinstance(one, kind) for one in each.value):
        return set(each.value)
    return None


def _met(known: set[Any] | None, more: set[Any] | None) -> set[Any] | None:
    if more is None:
        return known
    return more if known is None else known & more


def _bounds(each: Filter, value: int) -> tuple[int | None, int | None]:
    """[low, high) of a comparison."""
    if isinstance(each, EqualTo | EqualNullSafe):
        return value, value + 1
    if isinstance(each, GreaterThan):
        return value + 1, None
    if isinstance(each, GreaterThanOrEqual):
        return value, None
    if isinstance(each, LessThan):
        return None, value
    if isinstance(each, LessThanOrEqual):
        return None, value + 1
    return None, None
