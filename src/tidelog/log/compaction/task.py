"""What is asked of a cleaning and what it tells: plain values, as JSON on their way to a child process and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One cleaning of one log, from its first segment to `end`, where a segment begins.

    Keys are noted from `first_dirty` on. `producers` is a snapshot of all that are alive, in Kafka's format.
    """

    folder: str
    token: str
    """Part of the names of the files that are written, so that no other cleaning can take them for its own."""
    segments: list[tuple[int, int]]
    """(base offset, bytes) of the segments to clean."""
    later: list[int]
    """Base offsets of the segments behind them: their transaction indexes may tell of what began before `end`."""
    first_dirty: int
    end: int
    log_start: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    buffer_bytes: int
    inflated_bytes_max: int
    bytes_per_s: float
    producers: bytes = b""

    def encode(self) -> bytes:
        import json

        values = asdict(self)
        del values["producers"]
        return json.dumps(values).encode() + b"\n" + self.producers

    @classmethod
    def decode(cls, data: bytes) -> Task:
        import json

        head, _, producers = data.partition(b"\n")
        values: dict[str, Any] = json.loads(head)
        values["segments"] = [(base, size) for base, size in values["segments"]]
        return cls(**values, producers=producers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A new segment is written and durable, under names that end in `.cleaned`: it may take the place of `bases`."""

    bases: list[int]
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    suffixes: list[str]
    """Of the files that the new segment has."""

    @property
    def base(self) -> int:
        return self.bases[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """All segments are written. `clean_end` is the offset up to which the log has each key once."""

    clean_end: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It can't go on. `damaged`: the log's own bytes are why, so that trying again is no use."""

    reason: str
    damaged: bool


Report: TypeAlias = Replacement | Done | Failed

_KINDS: dict[str, type[Replacement | Done | Failed]] = {kind.__name__: kind for kind in (Replacement, Done, Failed)}


def encode_report(report: Report) -> bytes:
    """One line."""
    import json

    return json.dumps([type(report).__name__, asdict(report)]).encode() + b"\n"


def decode_report(line: bytes) -> Report:
    import json

    name, values = json.loads(line)
    return _KINDS[name](**values)
