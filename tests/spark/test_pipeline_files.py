"""Pipeline files: what is wrong is said with its line; what ships with Tidelog is right."""

import json
import os
from pathlib import Path

import pytest

from tidelog.spark.pipeline.check import PipelineError, read_file
from tidelog.spark.pipeline.model import load
from tidelog.spark.pipeline.places import line_of, lines_of

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
    used = json.loads((TOP / "src/tidelog/spark/pipeline/pipeline.schema.json").read_text())
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
    assert (made.name, made.streams, made.sinks[0][0]) == ("p", True, "out")
    assert made.state == tmp_path / "state"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('decode = "json"', 'decod = "json"', 6, "unknown key decod; did you mean decode?"),
        ('decode = "json"', 'decode = "xml"', 6, "source.orders.decode is 'xml', expected one of json, avro"),
        ('schema = "id long"', "", 6, "decode = 'json' needs a schema, or infer"),
        ('topics = ["orders"]', "topics = 3", 5, "source.orders.topics is 3, expected a array"),
        ('from = "big"', 'from = "bigg"', 17, "there is no table bigg; did you mean big?"),
        ('topic = "out"', "", 16, "a sink needs one of topic, path, jdbc, format, console; this one has none"),
        ('topic = "out"', 'topic = "out"\nupsert_by = ["id"]', 19, "upsert_by is for Parquet folders"),
        ('name = "p"', "", 1, "the file has no name"),
        ('state = "state"', 'state = "state', 2, "not TOML"),
        ('name = "big"', 'name = "orders"', 10, "there are two tables orders"),
        ('name = "big"', 'name = "big"\ndedup = ["id"]', 11, "dedup keeps state for ever without a watermark"),
        ("[source.orders]", "[source.or-ders]", 4, "'or-ders' is no name of a table"),
        ('[bad_rows]\ntopic = "dead"', "", 6, "source orders: rows that can't be decoded need a place: add [bad_rows]"),
        ('topic = "dead"', "drop = false", 21, "bad_rows.drop is False, expected one of true"),
        ('topic = "dead"', 'topic = "dead"\ndrop = true', 20, "bad_rows needs one of topic and drop"),
    ],
)
def test_problems_have_lines(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    found = problems(tmp_path, GOOD.replace(old, new))
    assert any(at == line and said in text for at, text in found), found


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
    file.write_text(GOOD + '\n[kafka]\n"security.protocol" = "SASL_SSL"\n')
    with pytest.raises(PipelineError, match=r"p.toml:23: security.protocol=SASL_SSL: SASL is not supported"):
        load(file).reach(1)


def test_lines_are_found_through_strings_and_arrays() -> None:
    lines = lines_of(GOOD + '\n[[sink]]\nfrom = "orders"\nconsole = true\n')
    assert lines["step", 0, "sql"] == 11
    assert (lines["sink", 0, "topic"], lines["sink", 1, "console"]) == (18, 25)
    assert line_of(lines, ("sink", 1, "nothing", "here")) == 23
