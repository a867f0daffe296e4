"""A pipeline as it was read: what the file says, where its state lies, and who may use that."""

import fcntl
import json
import os
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tidelog.rpc import Cluster, Options
from tidelog.rpc.address import addresses
from tidelog.spark.pipeline.file.check import PipelineError, Problem, read_file
from tidelog.spark.pipeline.file.spec import BadRowsSink, PipelineSpec, Sink, Source, Step, TopicSink
from tidelog.spark.pipeline.file.toml_lines import KeyPath, line_of
from tidelog.spark.pipeline.file.validate import BAD_ROWS
from tidelog.spark.source.progress import write_file

OWNER = "pipeline.json"
"""Whose folder it is, below its state."""
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True)
class Pipeline:
    file: Path
    spec: PipelineSpec
    lines: dict[KeyPath, int]
    bootstrap: str
    state: Path

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def sources(self) -> Mapping[str, Source]:
        return self.spec.sources

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.spec.steps

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return self.spec.sinks

    def sink(self, query: str) -> Sink | None:
        """The sink that a query writes to; None for those of bad rows, and one that the file no longer has."""
        return next((sink for sink in self.sinks if sink.name == query), None)

    @property
    def bad_topic(self) -> str | None:
        return None if self.spec.bad_rows is None else self.spec.bad_rows.topic

    def bad_rows_sink(self, source: str) -> BadRowsSink:
        """Where the bad rows of a source go, by the name of the query that sees to them."""
        name = BAD_ROWS if len(self.sources) == 1 else f"{BAD_ROWS}-{source}"
        return BadRowsSink(name=name, from_table=source, topic=self.bad_topic)

    def topic_options(self, query: str) -> Mapping[str, str] | None:
        """The options of the sink by which a query writes to a topic; None where it writes to none."""
        if query.startswith(BAD_ROWS):
            return None if self.bad_topic is None else {}
        sink = self.sink(query)
        return sink.options if isinstance(sink, TopicSink) else None

    def beside(self, path: str) -> Path:
        """A path of the file: beside it, where it is relative."""
        return (self.file.parent / path).resolve()

    @property
    def state_id(self) -> str:
        """What tells this state from one that is made anew: sinks know a repeated batch by it."""
        return json.loads((self.state / OWNER).read_text())["id"]

    @property
    def kafka(self) -> dict[str, str]:
        """How to reach the brokers, as options of sources and sinks."""
        given = {f"kafka.{name}": value for name, value in self.spec.kafka.items()}
        return {**given, "kafka.bootstrap.servers": self.bootstrap}

    def reach(self, patience_s: float) -> Cluster:
        """The brokers, for a call of the driver's own."""
        try:
            options = Options.from_kafka(self.spec.kafka)
        except ValueError as error:
            raise self.problem(("kafka",), str(error)) from None
        return Cluster(self.bootstrap, replace(options, patience_s=patience_s))

    @contextmanager
    def hold_state(self) -> Generator[None]:
        """Nobody else runs on the state's folder meanwhile: two would write each batch in turns."""
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                other = lock.read().strip() or "unknown"
                raise self.problem(
                    ("state",),
                    f"{self.name} runs already, as process {other}, on {self.state}: stop that one first, or give this "
                    "one a name and a folder of its own",
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def problem(self, path: KeyPath, text: str, below: int = 0) -> PipelineError:
        """An error at a key's line, or so many lines below it."""
        return PipelineError(str(self.file), [Problem(line_of(self.lines, path) + below, text)])

    @property
    def streams(self) -> bool:
        return any(source.is_stream for source in self.sources.values())

    def is_watched(self, source: Source) -> bool:
        """Whether a source's bad rows come as a stream.

        So they do, beside streams, for a table as well that is a topic: each run reads it anew, and would send its
        letters again. One that ends somewhere can't be a stream.
        """
        ends = any(option.lower().startswith("ending") for option in source.options)
        return source.is_stream or (self.streams and not ends)

    def take_state(self) -> None:
        """Make the state's folder, and refuse that of another pipeline."""
        mine = {"name": self.name, "file": str(self.file.resolve()), "id": secrets.token_hex(8)}
        other = self.check_state()
        if other is not None:
            mine["id"] = other["id"]
        self.state.mkdir(parents=True, exist_ok=True)
        write_file(self.state / OWNER, json.dumps(mine), durable=True)

    def check_state(self) -> dict[str, str] | None:
        """What the state's folder says of its pipeline, if there is one; another's is refused."""
        try:
            other: dict[str, str] = json.loads((self.state / OWNER).read_text())
        except FileNotFoundError:
            return None
        if other["name"] != self.name:
            raise self.problem(
                ("state",),
                f"{self.state} holds the checkpoint of pipeline {other['name']}; give this one a folder of its own",
            )
        return other


def load(file: Path, bootstrap: str | None = None) -> Pipeline:
    """The pipeline in a file; PipelineError with every problem that can be seen without Spark or a broker."""
    spec, lines = read_file(file)
    if bootstrap is not None:
        try:
            addresses(bootstrap)
        except ValueError as error:
            raise PipelineError(str(file), [Problem(1, f"bootstrap: {error}")]) from None
    given = DEFAULT_BOOTSTRAP if spec.bootstrap is None else spec.bootstrap
    return Pipeline(file, spec, lines, bootstrap or given, file.parent / spec.state)
