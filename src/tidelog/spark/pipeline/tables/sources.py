"""Sources as tables of a Spark session: topics, decoded, or anything else that Spark reads."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tidelog.client.start import Start
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import Avro, Decoding, FormatSource, Json, Protobuf, TopicSource
from tidelog.spark.pipeline.quarantine.offset_ranges import options_for
from tidelog.spark.pipeline.tables.decode import columns_of, decoded, inferred
from tidelog.spark.pipeline.tables.views import Views
from tidelog.spark.source.options import OptionError, read_options
from tidelog.spark.source.plan import OffsetRange
from tidelog.spark.source.progress import write_file

FILE_OPTIONS = {"csv": {"mode": "FAILFAST"}, "json": {"mode": "FAILFAST"}}
"""Spark's own default makes nulls of what it can't read, and says nothing."""
WHAT_TO_READ = ("subscribe", "assign", "starting", "ending", "failondataloss")
"""How the options begin that say so, and what is made of a gap."""


def read(
    spark: Any,
    pipeline: Pipeline,
    name: str,
    views: Views,
    start: str | None = None,
    *,
    bad: bool = False,
    still: Sequence[OffsetRange] | None = None,
    begins: str = "",
) -> Any:
    """The rows of a source; with `bad` those of a decoded one for its bad rows: with headers, so that none is lost.

    `still`: no more than these stretches of a topic, as a table. `begins`: whose beginning it is, where that is not the
    pipeline's.
    """
    source = pipeline.sources[name]
    stream = still is None and (pipeline.is_watched(source) if bad else source.is_stream)
    reading = spark.readStream if stream else spark.read
    if isinstance(source, FormatSource):
        return _other(reading, pipeline, source)
    base = {**pipeline.kafka, "failOnDataLoss": str(not source.ignore_loss).lower()}
    base |= {"subscribe": ",".join(source.topics)} if source.pattern is None else {"subscribePattern": source.pattern}
    base["kafka.isolation.level"] = "read_committed" if source.committed else "read_uncommitted"
    given = base | _starting(pipeline, source, start or source.start)
    if stream:
        if source.max_rows is not None:
            given["maxOffsetsPerTrigger"] = str(source.max_rows)
        given["initialOffsetsPath"] = str(initial_offsets(pipeline, name, begins))
        given["progressPath"] = str(pipeline.state.resolve() / f"progress-{name}")
    given |= {**source.options, **({"includeHeaders": "true"} if bad else {})}
    if still:
        given = {key: value for key, value in given.items() if not key.lower().startswith(WHAT_TO_READ)}
        given |= {**options_for(still), "failOnDataLoss": "false"}
    try:
        read_options(given, streaming=stream)
    except OptionError as error:
        raise pipeline.problem((*source.key_path, "options"), str(error)) from None
    rows = reading.format("tidelog").options(**given).load()
    rows = views.counted(name, rows) if stream else rows
    return decoded(rows, _decoding(spark, pipeline, source, base))


def initial_offsets(pipeline: Pipeline, name: str, begins: str = "") -> Path:
    """Where it stands from where a source's first micro-batch began: the pipeline's, or that of a query by itself."""
    return pipeline.state.resolve() / f"initial-{name}{'@' if begins else ''}{begins}.json"


def _other(reading: Any, pipeline: Pipeline, source: FormatSource) -> Any:
    reading = reading.format(source.format).options(**FILE_OPTIONS.get(source.format, {}))
    reading = reading.options(**source.options)
    if source.schema:
        reading = reading.schema(columns_of(source.schema))
    return reading.load(_beside(pipeline, source.path)) if source.path else reading.load()


def _decoding(spark: Any, pipeline: Pipeline, source: TopicSource, base: dict[str, str]) -> Decoding:
    """As the file says, with the path of a descriptor and the schema, where that is to be inferred."""
    decoding = source.decoding
    match decoding:
        case Protobuf():
            return replace(decoding, descriptor=_beside(pipeline, decoding.descriptor))
        case Json(schema="infer") | Avro(schema="infer"):
            return replace(decoding, schema=_inferred(spark, pipeline, source, base))
        case _:
            return decoding


def _inferred(spark: Any, pipeline: Pipeline, source: TopicSource, base: dict[str, str]) -> str:
    """The schema, inferred once and kept: another one would change the checkpoint.

    It is kept by a run, whose state the folder is, and not by a check before the first one.
    """
    kept = pipeline.state / f"schema-{source.name}.txt"
    if kept.exists():
        return kept.read_text()
    schema = inferred(spark.read.format("tidelog").options(**base).load(), source.decoding)
    if pipeline.check_state() is not None:
        write_file(kept, schema, durable=True)
    return schema


def _starting(pipeline: Pipeline, source: TopicSource, text: str) -> dict[str, str]:
    if text in ("earliest", "latest"):
        return {"startingOffsets": text}
    try:
        start = Start.parse(text, datetime.now().astimezone())
    except ValueError:
        start = None
    if start is None or start.kind != "time":
        raise pipeline.problem((*source.key_path, "from"), f"{text!r}: write earliest, latest, 2h or 2026-01-31T12:00")
    return {"startingTimestamp": str(start.value), "startingOffsetsByTimestampStrategy": "latest"}


def _beside(pipeline: Pipeline, path: str) -> str:
    return path if "://" in path else str(pipeline.beside(path))
