"""What a pipeline's file says, as values: its sources, steps and sinks, each of its kind, with defaults filled in.

Made only of a file that was found to be a pipeline (parse.py), so that what stands in one of these goes together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tidelog.spark.pipeline.file.toml_lines import KeyPath
from tidelog.spark.source.options import compiled

Mode: TypeAlias = Literal["append", "update", "complete"]
Toml: TypeAlias = Mapping[str, Any]
"""A table as it stands in the file, by which a run knows whether it was changed."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """The column that says when a row was, and how late one may come."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Undecoded:
    """Values stay the bytes that they are."""


@dataclass(frozen=True, slots=True)
class Text:
    registry: bool = False


@dataclass(frozen=True, slots=True)
class Json:
    """Columns as SQL writes them, or `infer`."""

    schema: str
    registry: bool = False


@dataclass(frozen=True, slots=True)
class Avro:
    """A record's schema, in JSON."""

    schema: str
    registry: bool = False


@dataclass(frozen=True, slots=True)
class Protobuf:
    """A message of a descriptor file."""

    descriptor: str
    message: str
    registry: bool = False


Decoding: TypeAlias = Undecoded | Text | Json | Avro | Protobuf
"""What is in a topic's values. `registry`: they begin with the bytes of a schema registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    name: str
    is_stream: bool
    watermark: Watermark | None
    options: Mapping[str, str]
    toml: Toml = field(repr=False)

    @property
    def key_path(self) -> KeyPath:
        return ("source", self.name)

    @property
    def is_decoded(self) -> bool:
        """Whether its rows may be bad."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource(_Source):
    """Topics, by name or by pattern."""

    topics: tuple[str, ...]
    pattern: str | None
    decoding: Decoding
    start: str
    max_rows: int | None
    committed: bool
    ignore_loss: bool

    @property
    def is_decoded(self) -> bool:
        return not isinstance(self.decoding, Undecoded)

    def reads(self, topic: str) -> bool:
        if self.pattern is not None:
            return compiled(self.pattern).search(topic) is not None
        return topic in self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSource(_Source):
    """Anything else that Spark reads: its columns are there already."""

    format: str
    path: str | None
    schema: str | None


Source: TypeAlias = TopicSource | FormatSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A table made by SQL of those before it."""

    index: int
    name: str
    sql: str
    watermark: Watermark | None
    dedup: tuple[str, ...]
    toml: Toml = field(repr=False)

    @property
    def key_path(self) -> KeyPath:
        return ("step", self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sink:
    index: int
    name: str
    from_table: str
    mode: Mode
    options: Mapping[str, str]
    toml: Toml = field(repr=False)

    @property
    def key_path(self) -> KeyPath:
        return ("sink", self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink(_Sink):
    """A topic; it is made with so many partitions, where they are given and it isn't there."""

    topic: str
    key: str | None
    partitions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSink(_Sink):
    """A folder of Parquet files that rows are added to."""

    path: str
    partition_by: tuple[str, ...]
    compact_files: int | None

    @property
    def is_address(self) -> bool:
        """Whether it lies where only Spark can write, as in s3a://."""
        return "://" in self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertSink(_Sink):
    """A folder of Parquet files that keeps one row for each key, the newest."""

    path: str
    upsert_by: tuple[str, ...]
    order_by: str
    buckets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSink(_Sink):
    """A table of a database."""

    url: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSink(_Sink):
    """Another of Spark's formats; where it writes to stands in its options."""

    format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink(_Sink):
    """Rows are shown."""


Sink: TypeAlias = TopicSink | FolderSink | UpsertSink | JdbcSink | FormatSink | ConsoleSink


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRows:
    """Where rows go that can't be decoded, or that a step fails on: to a topic of dead letters, or they are dropped."""

    topic: str | None
    partitions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRowsSink:
    """What takes the bad rows of one source, under the name of its query: a topic, or nothing."""

    name: str
    from_table: str
    topic: str | None

    @property
    def toml(self) -> Toml:
        return {"from": self.from_table, "topic": self.topic}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """All of a file. `trigger` is how often a micro-batch starts, in the only words that Spark knows for it."""

    name: str
    state: str
    bootstrap: str | None
    trigger: str | None
    lag_groups: bool
    sources: Mapping[str, Source]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    bad_rows: BadRows | None
    kafka: Mapping[str, str]
    spark: Mapping[str, str]
