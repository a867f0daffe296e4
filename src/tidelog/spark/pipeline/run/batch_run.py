"""A run of a pipeline without streams: under which number each sink is written, kept until all of the run is done.

A run that was cut short is repeated under its number, so that what is written once holds. But a sink whose rows are
made otherwise since, by SQL that was mended in between, has rows that nobody wrote yet: a topic gets them under a
number of their own. In a folder they take the place of those that were written.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import BadRowsSink, Sink, TopicSink
from tidelog.spark.source.progress import write_file

FILE = "still.json"


@dataclass(slots=True)
class _Sink:
    number: int
    made: str | None
    """A hash of what the file says about its rows; None where an earlier version began the run."""
    done: bool = False


class StillRun:
    """A run and its sinks, as the pipeline's state holds them."""

    def __init__(self, file: Path, number: int, sinks: dict[str, _Sink], mended: frozenset[str]) -> None:
        self._file = file
        self._run = number
        self._sinks = sinks
        self.mended = mended
        """Sinks that were written before, in a run that was cut short, from what the file said then."""

    def number(self, sink: str) -> int:
        return self._sinks[sink].number if sink in self._sinks else self._run

    def done(self, sink: str) -> None:
        """All rows of a sink are written."""
        if sink in self._sinks:
            self._sinks[sink].done = True
            self.keep()

    def end(self) -> None:
        """All of it is done: the next run is another one."""
        last = max([self._run, *(each.number for each in self._sinks.values())])
        write_file(self._file, json.dumps({"last": last}), durable=True)

    def keep(self) -> None:
        sinks = {name: [each.number, each.made, each.done] for name, each in self._sinks.items()}
        write_file(self._file, json.dumps({"run": self._run, "sinks": sinks}), durable=True)


def begin_still(pipeline: Pipeline, now_s: float, besides: Iterable[BadRowsSink] = ()) -> StillRun:
    """The run that was cut short, once more, or the next one: it is known by the time at which it began.

    `besides` are the sinks that the file doesn't name: of bad rows.
    """
    file = pipeline.state / FILE
    record: Any = json.loads(file.read_text()) if file.exists() else {}
    if isinstance(record, int):  # of an earlier version, which kept nothing but the number
        record = {"run": record}
    before = {name: _Sink(*kept) for name, kept in record.get("sinks", {}).items()}
    run: int = record.get("run", max(int(now_s), record.get("last", -1) + 1))
    higher = max([int(now_s), *(each.number + 1 for each in before.values())])
    sinks: dict[str, _Sink] = {}
    mended: set[str] = set()
    for sink in (*pipeline.sinks, *besides):
        name = sink.name
        kept, made = before.get(name, _Sink(run, None)), _made(pipeline, sink)
        is_other = kept.made not in (None, made)
        if is_other and kept.done:
            mended.add(name)
        number = higher if is_other and isinstance(sink, TopicSink | BadRowsSink) else kept.number
        sinks[name] = _Sink(number, made, kept.done and not is_other)
    begun = StillRun(file, run, sinks, frozenset(mended))
    begun.keep()
    return begun


def _made(pipeline: Pipeline, sink: Sink | BadRowsSink) -> str:
    """A hash of what the file says about a sink and the tables that its rows are made from.

    A step's SQL reads the tables whose names are in it: a column of such a name may be among them, but none is missed.
    """
    steps = {step.name: step for step in pipeline.steps}
    read, unread = set[str](), [sink.from_table]
    while unread:
        name = unread.pop()
        read.add(name)
        sql = steps[name].sql if name in steps else ""
        tables = (*pipeline.sources, *steps)
        named = (each for each in tables if re.search(rf"(?<!\w){re.escape(each)}(?!\w)", sql, re.IGNORECASE))
        unread += (each for each in named if each not in read)
    whole = [sink.toml, *((name, (steps.get(name) or pipeline.sources[name]).toml) for name in sorted(read))]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:32]
