"""What a pipeline's file says, as values: each kind of source, step and sink, with its defaults."""

from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from tidelog.spark.pipeline.file.check import read_file
from tidelog.spark.pipeline.file.spec import (
    Avro,
    BadRows,
    ConsoleSink,
    FolderSink,
    FormatSink,
    FormatSource,
    JdbcSink,
    Json,
    PipelineSpec,
    Protobuf,
    Sink,
    Source,
    Step,
    Text,
    TopicSink,
    TopicSource,
    Undecoded,
    UpsertSink,
    Watermark,
)

HEAD = 'name = "p"\nstate = "state"\nbad_rows = { drop = true }\n'
SOURCE = '[source.orders]\ntopics = ["orders"]\n'
SINK = '[[sink]]\nfrom = "orders"\n'


def spec_of(folder: Path, text: str) -> PipelineSpec:
    file = folder / "p.toml"
    file.write_text(HEAD + text)
    return read_file(file)[0]


def without_toml(value: Source | Step | Sink) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value) if each.name != "toml"}


def test_what_a_file_leaves_out_is_filled_in(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, SOURCE + SINK + 'topic = "out"\n')
    assert (spec.name, spec.state, spec.bootstrap, spec.trigger, spec.lag_groups) == ("p", "state", None, None, False)
    assert (spec.steps, spec.bad_rows, spec.kafka, spec.spark) == ((), BadRows(topic=None, partitions=None), {}, {})
    source, [sink] = spec.sources["orders"], spec.sinks
    assert isinstance(source, TopicSource)
    assert without_toml(source) == {
        "name": "orders",
        "is_stream": True,
        "watermark": None,
        "options": {},
        "topics": ("orders",),
        "pattern": None,
        "decoding": Undecoded(),
        "start": "earliest",
        "max_rows": None,
        "committed": True,
        "ignore_loss": False,
    }
    assert isinstance(sink, TopicSink)
    assert without_toml(sink) == {
        "index": 0,
        "name": "out",
        "from_table": "orders",
        "mode": "append",
        "options": {},
        "topic": "out",
        "key": None,
        "partitions": None,
    }
    assert (source.key_path, sink.key_path) == (("source", "orders"), ("sink", 0))


def test_every_kind_of_sink_has_what_it_needs(tmp_path: Path) -> None:
    kinds = [
        'topic = "t"\nkey = "id"\npartitions = 3\nmode = "update"',
        'path = "lake"\npartition_by = ["day"]\ncompact_files = 20',
        'path = "s3a://lake/far"',
        'path = "table"\nupsert_by = ["id"]',
        'jdbc = "jdbc:h2:mem:"\ntable = "rows"',
        'format = "delta"\noptions = { path = "delta" }',
        "console = true",
    ]
    sinks = spec_of(tmp_path, SOURCE + "".join(f"{SINK}{kind}\n" for kind in kinds)).sinks
    assert [sink.name for sink in sinks] == ["t", "lake", "far", "table", "rows", "delta", "console"]
    topic, folder, far, table, database, other, console = sinks
    assert isinstance(topic, TopicSink)
    assert (topic.key, topic.partitions, topic.mode) == ("id", 3, "update")
    assert isinstance(folder, FolderSink)
    assert (folder.path, folder.partition_by, folder.compact_files, folder.is_address) == ("lake", ("day",), 20, False)
    assert isinstance(far, FolderSink)
    assert (far.path, far.partition_by, far.compact_files, far.is_address) == ("s3a://lake/far", (), None, True)
    assert isinstance(table, UpsertSink)
    assert (table.path, table.upsert_by, table.order_by, table.buckets) == ("table", ("id",), "_offset", 8)
    assert isinstance(database, JdbcSink)
    assert (database.url, database.table) == ("jdbc:h2:mem:", "rows")
    assert isinstance(other, FormatSink)
    assert (other.format, other.options) == ("delta", {"path": "delta"})
    assert isinstance(console, ConsoleSink)


@pytest.mark.parametrize(
    ("text", "decoding"),
    [
        ('decode = "none"', Undecoded()),
        ('decode = "text"\nregistry = true', Text(registry=True)),
        ('decode = "json"\nschema = "infer"', Json("infer")),
        ('decode = "avro"\nschema = "{}"\nregistry = true', Avro("{}", registry=True)),
        ('decode = "protobuf"\ndescriptor = "d.pb"\nmessage = "shop.Order"', Protobuf("d.pb", "shop.Order")),
    ],
)
def test_a_decoding_has_what_its_kind_needs(tmp_path: Path, text: str, decoding: object) -> None:
    source = spec_of(tmp_path, f'{SOURCE}{text}\n{SINK}topic = "out"\n').sources["orders"]
    assert isinstance(source, TopicSource)
    assert (source.decoding, source.is_decoded) == (decoding, decoding != Undecoded())


def test_sources_read_their_topics_or_what_spark_reads(tmp_path: Path) -> None:
    text = '[source.all]\npattern = "^or"\nstream = false\n'
    text += '[source.orders]\nformat = "csv"\npath = "o.csv"\nschema = "id long"\n'
    every, file = spec_of(tmp_path, text + SINK + "console = true\n").sources.values()
    assert isinstance(every, TopicSource)
    assert [every.reads(topic) for topic in ("orders", "for")] == [True, False]
    assert not every.is_stream
    assert isinstance(file, FormatSource)
    assert (file.format, file.path, file.schema, file.is_stream, file.is_decoded) == (
        *("csv", "o.csv", "id long"),
        *(False, False),
    )


def test_a_step_has_its_watermark_in_two_parts(tmp_path: Path) -> None:
    text = '[[step]]\nname = "big"\nsql = "select 1"\nwatermark = "at   10 minutes"\ndedup = ["id"]\n'
    [step] = spec_of(tmp_path, SOURCE + text + SINK + "console = true\n").steps
    assert without_toml(step) == {
        "index": 0,
        "name": "big",
        "sql": "select 1",
        "watermark": Watermark("at", "10 minutes"),
        "dedup": ("id",),
    }
    with pytest.raises(FrozenInstanceError):
        step.sql = "select 2"  # pyright: ignore[reportAttributeAccessIssue]
