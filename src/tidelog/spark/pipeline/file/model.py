"""A pipeline as it was read: what the file says, where its state lies, and who may use that."""

import fcntl
import json
import os
import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidelog.rpc import Cluster, Options
from tidelog.rpc.address import addresses
from tidelog.spark.pipeline.file.check import PipelineError, Problem, read_file
from tidelog.spark.pipeline.file.toml_lines import Path as KeyPath
from tidelog.spark.pipeline.file.toml_lines import line_of
from tidelog.spark.pipeline.file.validate import sink_name
from tidelog.spark.source.progress import write_file

OWNER = "pipeline.json"
"""Whose folder it is, below its state."""
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
SPARKS_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}


@dataclass(frozen=True, slots=True)
class Pipeline:
    file: Path
    name: str
    told: dict[str, Any]
    lines: dict[KeyPath, int]
    bootstrap: str
    state: Path

    @property
    def sources(self) -> dict[str, dict[str, Any]]:
        return self.told["source"]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.told.get("step", [])

    @property
    def sinks(self) -> list[tuple[str, dict[str, Any]]]:
        return [(sink_name(index, sink), sink) for index, sink in enumerate(self.told["sink"])]

    def is_decoded(self, name: str) -> bool:
        """Whether rows of a source may be bad."""
        return self.sources[name].get("decode", "none") != "none"

    @property
    def bad_topic(self) -> str | None:
        return self.told.get("bad_rows", {}).get("topic")

    @property
    def trigger(self) -> str | None:
        """How often a micro-batch starts, in the only words that Spark knows for it."""
        told = re.fullmatch(r"(\d+) *(\w+)", self.told.get("trigger", ""))
        return f"{told[1]} {SPARKS_UNITS.get(told[2], told[2])}" if told else None

    @property
    def state_id(self) -> str:
        """What tells this state from one that is made anew: sinks know a repeated batch by it."""
        return json.loads((self.state / OWNER).read_text())["id"]

    @property
    def kafka(self) -> dict[str, str]:
        """How to reach the brokers, as options of sources and sinks."""
        given = {f"kafka.{name}": value for name, value in self.told.get("kafka", {}).items()}
        return {**given, "kafka.bootstrap.servers": self.bootstrap}

    def reach(self, patience_s: float) -> Cluster:
        """The brokers, for a call of the driver's own."""
        try:
            options = Options.from_kafka(self.told.get("kafka", {}))
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

    def is_stream(self, name: str) -> bool:
        source = self.sources[name]
        return source.get("stream", "format" not in source)

    @property
    def streams(self) -> bool:
        return any(self.is_stream(name) for name in self.sources)

    def is_watched(self, name: str) -> bool:
        """Whether a source's bad rows come as a stream.

        So they do, beside streams, for a table as well that is a topic: each run reads it anew, and would send its
        letters again. One that ends somewhere can't be a stream.
        """
        ends = any(option.lower().startswith("ending") for option in self.sources[name].get("options", {}))
        return self.is_stream(name) or (self.streams and not ends)

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
    told, lines = read_file(file)
    if bootstrap is not None:
        try:
            addresses(bootstrap)
        except ValueError as error:
            raise PipelineError(str(file), [Problem(1, f"bootstrap: {error}")]) from None
    state = file.parent / told["state"]
    return Pipeline(file, told["name"], told, lines, bootstrap or told.get("bootstrap", DEFAULT_BOOTSTRAP), state)
