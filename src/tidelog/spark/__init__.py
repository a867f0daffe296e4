"""Topics as tables, still and moving: the data source for Spark, and pipelines. Needs `pip install tidelog[spark]`.

Most of it needs no import: `spark.read.format("tidelog")` is found by Spark itself. What programs import stands here:

    from tidelog.spark import current, declare, end_run

`current(spark, folder)` is a lake with one row a key as a table; `declare(file)` declares a pipeline in a project of
Spark Declarative Pipelines; `end_run(...)` ends what a query that was stopped in the middle of a batch has open.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.spark.pipeline.declarative import declare
    from tidelog.spark.pipeline.sinks.lake import current
    from tidelog.spark.sink.abort_run import end_run

__all__ = ["current", "declare", "end_run"]

_HOMES = {
    "current": "tidelog.spark.pipeline.sinks.lake",
    "declare": "tidelog.spark.pipeline.declarative",
    "end_run": "tidelog.spark.sink.abort_run",
}


def __getattr__(name: str) -> Any:
    """Imported on first use: commands that need no Spark import parts of this package, too."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
