"""Pipeline files: what is wrong is said with its line; what ships with Tidelog is right."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.spark.pipeline.file.check import PipelineError, read_file
from tidelog.spark.pipeline.file.model import load
from tidelog.spark.pipeline.file.toml_lines import line_of, lines_of

TOP = Path(__file__).parents[2]
READY = sorted((TOP / "pipelines").glob("*.toml"))

GOOD = """name = "p"
state = "state"

[source.orders]
topics = ["orders"]
decode = "json"
schema = "id long"

[[step]]
name = "big"
sql = \"\"\"
select *
from orders
\"\"\"

[[sink]]
from = "big"
topic = "out"

[bad_rows]
topic = "dead"
"""


def problems(tmp_path: Path, text: str) -> list[tuple[int, str]]:
    file = tmp_path / "p.toml"
    file.write_text(text)
    with pytest.raises(PipelineError) as raised:
        read_file(file)
    return [(each.line, each.text) for each in raised.value.problems]


@pytest.mark.parametrize("file", READY, ids=lambda file: file.name)
def test_ready_pipelines_are_fine_and_short(file: Path) -> None:
    load(file)
    assert len(file.read_text().splitlines()) <= 40


@pytest.mark.parametrize("file", READY, ids=lambda file: file.name)
def test_every_ready_pipeline_has_a_page(file: Path) -> None:
    first = file.read_text().splitlines()[0]
    page = first.rpartition(" ")[2]
    assert (TOP / page).exists(), f"{file.name} names {page}"
    assert file.name in (TOP / page).read_text()


def test_the_schema_is_published_as_it_is_used() -> None:
    used = json.loads((TOP / "src/tidelog/spark/pipeline/file/pipeline.schema.json").read_text())
    assert json.loads((TOP / "docs/pipelines/pipeline.schema.json").read_text()) == used


def test_every_key_is_documented() -> None:
    page = (TOP / "docs/pipelines/README.md").read_text()
    schema = json.loads((TOP / "docs/pipelines/pipeline.schema.json").read_text())
    parts = schema["properties"]
    keys = set(parts) | set(parts["source"]["additionalProperties"]["properties"])
    for part in ("step", "sink"):
        keys |= set(parts[part]["items"]["properties"])
    keys |= set(parts["bad_rows"]["properties"])
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []


def test_a_good_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(GOOD)
    made = load(file)
    assert (made.name, made.streams, made.sinks[0].name) == ("p", True, "out")
    assert made.state == tmp_path / "state"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('decode = "json"', 'decod = "json"', 6, "unknown key decod; did you mean decode?"),
        ('decode = "json"', 'decode = "xml"', 6, 'source.orders.decode is "xml", expected one of "json", "avro"'),
        ('schema = "id long"', "", 6, "decode = 'json' needs a schema, or infer"),
        ('topics = ["orders"]', "topics = 3", 5, "source.orders.topics is 3, expected a list"),
        ('from = "big"', 'from = "bigg"', 17, "there is no table bigg; did you mean big?"),
        ('topic = "out"', "", 16, "a sink needs one of topic, path, jdbc, format, console; this one has none"),
        ('topic = "out"', 'topic = "out"\nupsert_by = ["id"]', 19, "upsert_by is for Parquet folders"),
        ('name = "p"', "", 1, "the file has no name"),
        ('state = "state"', 'state = "state', 2, "not TOML"),
        ('name = "big"', 'name = "orders"', 10, "there are two tables orders"),
        ('name = "big"', 'name = "big"\ndedup = ["id"]', 11, "dedup keeps state for ever without a watermark"),
        ("[source.orders]", "[source.or-ders]", 4, "'or-ders' is no name of a table"),
        ('[bad_rows]\ntopic = "dead"', "", 6, "source orders: rows that can't be decoded need a place: add [bad_rows]"),
        ('topic = "dead"', "drop = false", 21, "bad_rows.drop is false, expected true"),
        ('topic = "dead"', 'topic = "dead"\ndrop = true', 20, "bad_rows needs one of topic and drop"),
        ('topic = "dead"', "drop = true\npartitions = 1", 22, "partitions is for a topic; these rows are dropped"),
        ('state = "state"', 'state = "s3a://b/state"', 2, "state is a folder of the local (or a mounted) file system"),
        ("[[step]]", "[step]", 9, "expected a list: write [[step]] above each"),
        ("[source.orders]", "[source]", 5, "expected a table: write [source.NAME] above its keys"),
        ('name = "big"', 'name = "Orders"', 10, "there are two tables Orders"),
        ('topics = ["orders"]', 'pattern = "("', 5, "'(' is no regular expression"),
        ('topics = ["orders"]', 'topics = ["orders"]\npath = "x"', 6, "path is for files (format)"),
        ('topics = ["orders"]', 'format = "csv"\nfrom = "2h"', 6, "from is for topics; csv has `options`"),
        ('decode = "json"', 'decode = "text"', 7, "schema is for decode = 'json' or 'avro'; this source has 'text'"),
        (
            'schema = "id long"',
            'schema = "id long"\nwatermark = "at 9 moons"',
            8,
            "Column and delay, as in: at 10 minu",
        ),
        ('schema = "id long"', 'schema = "id long"\nmax_rows = 0', 8, "max_rows is 0, expected at least 1"),
        ('schema = "id long"', "options = { header = true }", 7, "header is true, expected text in quotes"),
        ('topic = "out"', 'topic = "out"\npartition_by = ["id"]', 19, "partition_by is for Parquet folders (path)"),
        ('topic = "out"', 'path = "lake"\nkey = "id"', 19, "key is for topics; this sink has path"),
        ('topic = "out"', 'path = "lake"\nbuckets = 2', 19, "buckets is for tables that are upserted: add upsert_by"),
        (
            'topic = "out"',
            'path = "lake"\nupsert_by = ["id"]\nbuckets = 5000',
            20,
            "expected at least 1 and at most 4096",
        ),
        ('topic = "out"', 'path = "lake"\nmode = "update"', 19, "add upsert_by to keep the newest"),
        ('topic = "out"', 'path = "s3a://b/x"\ncompact_files = 9', 19, "compact_files needs a folder of the local"),
        ('topic = "out"', 'format = "delta"\npath = "lake"', 16, "with format, where it writes to stands in `options`"),
        ('topic = "out"', "console = false", 18, "sink.0.console is false, expected true"),
        ('topic = "out"', 'topic = "bad-rows"', 16, "bad-rows is what a query for bad rows is called"),
        ('topic = "out"', 'topic = "orders"', 18, "source orders reads orders too: its rows would go in a circle"),
        ('topic = "dead"', 'topic = "orders"', 21, "source orders reads orders too"),
        ('state = "state"', 'state = "state"\nbootstrap = "sea"', 3, "bootstrap: 'sea' has no port: write sea:9092"),
        (
            "[bad_rows]",
            '[kafka]\n"security.protcol" = "SSL"\n[bad_rows]',
            21,
            "unknown setting security.protcol; did you mean security.protocol?",
        ),
        (
            "[bad_rows]",
            '[kafka]\n"isolation.level" = "read_uncommitted"\n[bad_rows]',
            21,
            "isolation.level is for sources: write committed = false there",
        ),
        (
            'schema = "id long"',
            'schema = "id long"\noptions = { "kafka.isolation.level" = "read_uncommitted" }',
            8,
            "kafka.isolation.level: write committed = true or false instead",
        ),
        (
            'schema = "id long"',
            'schema = "id long"\noptions = { "kafka.fetch.mni.bytes" = "1" }',
            8,
            "unknown option kafka.fetch.mni.bytes; did you mean kafka.fetch.min.bytes?",
        ),
        (
            'schema = "id long"',
            'schema = "id long"\noptions = { commitOffsetsTo = "g" }',
            8,
            "commitOffsetsTo: several queries may read a source; write lag_groups = true",
        ),
        (
            'topic = "out"',
            'topic = "out"\noptions = { "kafka.compresion.type" = "zstd" }',
            19,
            "unknown option kafka.compresion.type; did you mean kafka.compression.type?",
        ),
        (
            'topic = "out"',
            'topic = "out"\noptions = { delivry = "at-least-once" }',
            19,
            "unknown option delivry; did you mean delivery?",
        ),
    ],
)
def test_problems_have_lines(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    reports = problems(tmp_path, GOOD.replace(old, new))
    assert any(at == line and said in text for at, text in reports), reports


def test_dead_letters_that_a_pattern_reads_again_are_found(tmp_path: Path) -> None:
    reports = problems(tmp_path, GOOD.replace('topics = ["orders"]', 'pattern = "ord.*|dead"'))
    assert reports == [
        (21, "source orders reads dead too: its rows would go in a circle; write to another topic"),
    ]


def test_a_file_that_is_no_text_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_bytes(b'name = "p"\nstate = "\xff"\n')
    with pytest.raises(PipelineError, match=r"p.toml:2: not UTF-8"):
        read_file(file)


def test_the_checker_knows_every_word_of_the_schema() -> None:
    """It is our own, and small: a word of JSON Schema that it doesn't know would be let through without a look."""
    known = {
        "$schema",
        "title",
        "description",
        "type",
        "enum",
        "pattern",
        "minimum",
        "maximum",
        "minLength",
        "minItems",
    }
    known |= {"minProperties", "required", "properties", "additionalProperties", "items"}

    def words(shape: dict[str, Any]) -> Iterator[str]:
        yield from shape
        assert "pattern" not in shape or "description" in shape, f"what {shape} expects can't be said"
        for part in [*shape.get("properties", {}).values(), shape.get("items"), shape.get("additionalProperties")]:
            yield from words(part) if isinstance(part, dict) else ()

    assert set(words(json.loads((TOP / "docs/pipelines/pipeline.schema.json").read_text()))) <= known


def test_a_checkpoint_does_not_depend_on_where_its_sink_stands_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(GOOD + '[[sink]]\nfrom = "big"\nconsole = true\n[[sink]]\nfrom = "big"\nformat = "delta"\n')
    assert [sink.name for sink in load(file).sinks] == ["out", "console", "delta"]


@pytest.mark.parametrize(
    ("given", "sparks"), [("10s", "10 seconds"), ("500 ms", "500 milliseconds"), ("1 minute", "1 minute"), (None, None)]
)
def test_a_trigger_is_told_to_spark_in_its_own_words(tmp_path: Path, given: str | None, sparks: str | None) -> None:
    file = tmp_path / "p.toml"
    file.write_text((f'trigger = "{given}"\n' if given else "") + GOOD)
    assert load(file).spec.trigger == sparks


def test_the_state_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text(GOOD)
    second.write_text(GOOD.replace('name = "p"', 'name = "q"'))
    load(first).take_state()
    load(first).take_state()
    with pytest.raises(PipelineError, match=r"b.toml:2: .* holds the checkpoint of pipeline p"):
        load(second).take_state()


def test_a_pipeline_runs_once_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(GOOD)
    with (
        load(file).hold_state(),
        pytest.raises(
            PipelineError, match=rf"p.toml:2: p runs already, as process {os.getpid()}, on .*: stop that one"
        ),
        load(file).hold_state(),
    ):
        pass
    with load(file).hold_state():
        pass


def test_brokers_are_reached_as_the_file_says(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(GOOD + '\n[kafka]\n"security.protocol" = "SSL"\n"ssl.ca.location" = "ca.pem"\n')
    made = load(file, "sea:9092")
    assert made.kafka["kafka.security.protocol"] == "SSL"
    assert made.kafka["kafka.bootstrap.servers"] == "sea:9092"
    with pytest.raises(PipelineError, match=r"p.toml:1: bootstrap: 'sea' has no port: write sea:9092"):
        load(file, "sea")
    file.write_text(GOOD + '\n[kafka]\n"security.protocol" = "SASL_SSL"\n')
    with pytest.raises(PipelineError, match=r"p.toml:23: security.protocol=SASL_SSL: SASL is not supported"):
        load(file).reach(1)


def test_lines_are_found_through_strings_and_arrays() -> None:
    lines = lines_of(GOOD + '\n[[sink]]\nfrom = "orders"\nconsole = true\n')
    assert lines["step", 0, "sql"] == 11
    assert (lines["sink", 0, "topic"], lines["sink", 1, "console"]) == (18, 25)
    assert line_of(lines, ("sink", 1, "nothing", "here")) == 23
    dotted = lines_of("# it's \"\"\"\nname = 'p'\nsource.orders.topics = ['a']\nsource.orders.decod = 'json'\n")
    assert line_of(dotted, ("source", "orders", "decod")) == 4
    assert line_of(dotted, ("source", "orders")) == 3


FAILURE = """[STREAM_FAILED] Query [id = 1] terminated with exception: [CAST_INVALID_INPUT] The value 'x' of the type \
"STRING" cannot be cast to "INT" because it is malformed. Use `try_cast`. SQLSTATE: 22018
== SQL (line 2, position 3) ==
  cast(name as int)
  ^^^^^^^^^^^^^^^^^
 SQLSTATE: XXKST"""


def test_a_row_that_a_step_fails_on_is_told_at_the_line_of_its_sql(tmp_path: Path) -> None:
    from tidelog.spark.pipeline.tables.error_location import failed_on_a_row

    file = tmp_path / "p.toml"
    file.write_text(GOOD.replace("select *\nfrom", "select id,\n  cast(name as int) as n\nfrom"))
    message = str(failed_on_a_row(load(file), RuntimeError(FAILURE)))
    assert message.startswith(f"{file}:13: step big can't go on with a row: [CAST_INVALID_INPUT] The value 'x'")
    assert "Mend the step and run it again" in message
    part = FAILURE.replace("  cast(name as int)\n", "...ast(name as int) ...\n")
    assert str(failed_on_a_row(load(file), RuntimeError(part))) == message
    assert failed_on_a_row(load(file), RuntimeError("the topic vanished")) is None
