"""Does a file still fit the state that its queries have: what Spark would refuse in a run's first batch, told before.

Spark is asked itself: the query is run on streams without rows, in a folder that goes again, and what it keeps there is
held against what it keeps in its checkpoint. Names don't matter to it, nor whether a column may be null.
"""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidelog.spark.checkpoint import HEAD_LINES, last_finished
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import Sink
from tidelog.spark.pipeline.quarantine.bisection import RELATION, ROW_BY_ROW, STREAMING
from tidelog.spark.pipeline.run.resets import checkpoint_of
from tidelog.spark.pipeline.sinks.writers import taken
from tidelog.spark.pipeline.tables.build import stepped
from tidelog.spark.pipeline.tables.views import Views

_OTHER_STATE = re.compile(
    r"\[STATE_STORE_[A-Z_]*SCHEMA[A-Z_]*\]"
    r"|\[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY\]"
    r"|\[STREAMING_STATEFUL_OPERATOR_(NOT_MATCH_IN_STATE_METADATA|MISSING_STATE_DIRECTORY)\]"
    r"|\[CANNOT_LOAD_STATE_STORE\.CANNOT_READ_DELTA_FILE_NOT_EXISTS\]"
    r"|sources in the checkpoint offsets and now there are"
)
"""How Spark says that a checkpoint is of another query."""


class Store(NamedTuple):
    """One kind of rows that a stateful operator keeps: under which key, and what."""

    operator: str
    name: str
    key: str
    value: str


class Kept(NamedTuple):
    """What a query keeps in its checkpoint: how far it is in so many streams, and the stores of its operators."""

    streams: int
    stores: tuple[Store, ...]


def is_of_another_query(failure: object) -> bool:
    """Whether a query failed since its checkpoint is that of another one, as the file was before it was changed."""
    return _OTHER_STATE.search(str(failure)) is not None


def advice(pipeline: Pipeline, query: str) -> str:
    """What to do then."""
    return (
        f"`tidelog pipeline reset {pipeline.file} --sink {query}` has it begin anew, and says what that means; or take "
        "the change back, or give the sink another name, and a place of its own to write to"
    )


def check_state(spark: Any, pipeline: Pipeline, tables: dict[str, Any]) -> None:
    """PipelineError at the first sink whose checkpoint the file no longer fits. `tables` are those of the file."""
    if not hasattr(spark, "_jsparkSession"):  # through Spark Connect a plan can't be looked at
        return
    for sink in pipeline.sinks:
        name, rows = sink.name, tables[sink.from_table]
        held = _kept(spark, checkpoint_of(pipeline, name)) if rows.isStreaming else None
        if held is None or _is_stateless(rows, held):
            continue
        made = _probed(spark, pipeline, sink, tables)
        if made is not None and made != held:
            why = (
                f"sink {name} no longer fits its state in {checkpoint_of(pipeline, name)}: {_difference(held, made)}. "
            )
            raise pipeline.problem(sink.key_path, why + advice(pipeline, name))


def _difference(held: Kept, made: Kept) -> str:
    if held.streams != made.streams:
        return f"that is of {held.streams} streams, and the file has it read {made.streams}"
    return f"that has {_described(held.stores)}, and the file makes {_described(made.stores)}"


def _described(stores: tuple[Store, ...]) -> str:
    return "; ".join(f"{each.operator} of {each.key} with {each.value}" for each in stores) or "no state"


def _is_stateless(rows: Any, held: Kept) -> bool:
    """Whether it is plain that neither the query nor its checkpoint has state: rows go through one by one."""
    plan: str = rows._jdf.queryExecution().analyzed().toString()  # noqa: SLF001  PySpark only prints it
    operators = [operator for operator, _ in STREAMING.findall(plan)]
    streams = operators.count(RELATION)
    joins = "Join" in operators and streams > 1
    return not held.stores and streams == held.streams and ROW_BY_ROW.issuperset(operators) and not joins


def _kept(spark: Any, checkpoint: Path) -> Kept | None:
    """None where no micro-batch was finished, or Spark can't tell."""
    last = last_finished(checkpoint)
    if last is None:
        return None
    offsets = checkpoint / "offsets" / str(last)
    try:
        streams = len(offsets.read_text().splitlines()[HEAD_LINES:])
        if not (checkpoint / "state").exists():
            return Kept(streams, ())
        path, reading = str(checkpoint.resolve()), spark.read
        operators = reading.format("state-metadata").load(path).collect()
        stores: list[Store] = []
        for row in sorted(operators, key=lambda row: (row.operatorId, row.stateStoreName)):
            of = {"operatorId": row.operatorId, "storeName": row.stateStoreName}
            schema = reading.format("statestore").options(**of).load(path).schema
            key, value = (_types(schema[part].dataType) for part in ("key", "value"))
            stores.append(Store(row.operatorName, row.stateStoreName, key, value))
    except (OSError, PySparkException, Py4JError, KeyError):
        return None
    return Kept(streams, tuple(stores))


def _types(kind: DataType) -> str:
    """A type without the names in it."""
    if isinstance(kind, StructType):
        return f"({', '.join(_types(field.dataType) for field in kind.fields)})"
    if isinstance(kind, ArrayType):
        return f"array of {_types(kind.elementType)}"
    if isinstance(kind, MapType):
        return f"map of {_types(kind.keyType)} to {_types(kind.valueType)}"
    return kind.simpleString()


def _probed(spark: Any, pipeline: Pipeline, sink: Sink, tables: dict[str, Any]) -> Kept | None:
    """What the query would keep, by running it once without rows; None where that can't be."""
    folder = Path(tempfile.mkdtemp(prefix="tidelog-check-"))
    try:
        given = {name: _empty(spark, tables[name], folder / f"rows-{name}") for name in pipeline.sources}
        rows = taken(sink, stepped(pipeline, given, Views(spark))[sink.from_table])
        writing = rows.writeStream.format("noop").outputMode(sink.mode)
        query = writing.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return _kept(spark, folder / "checkpoint")
    except (PySparkException, Py4JError):
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _empty(spark: Any, rows: Any, folder: Path) -> Any:
    """A table without rows, or a stream that has one file without: not seen to be so before it is read."""
    nothing = spark.createDataFrame(spark.sparkContext.emptyRDD(), rows.schema)
    if not rows.isStreaming:
        return nothing
    nothing.coalesce(1).write.parquet(str(folder))
    return spark.readStream.schema(rows.schema).parquet(str(folder))
