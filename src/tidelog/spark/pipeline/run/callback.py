"""What a stream calls for each micro-batch, and how its failure is told to Spark.

Spark looks in the text of a failed callback for an interruption, by a pattern that recurses with the text's length: an
error of Java's that passed through Python is long enough to overflow the stack of the query's thread, which dies of it,
and nobody hears of the failure. The pattern begins with the name of py4j's error, which is therefore left out.
"""

from collections.abc import Callable
from typing import Any

INTERRUPTIONS = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)
_PATTERN = "py4j.protocol.Py4JJavaError: "


def each_batch(write: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """`write`, for foreachBatch: its failures have the same words, and end the query with them."""

    def each(batch: Any, number: int) -> None:
        try:
            write(batch, number)
        except Exception as error:
            raise RuntimeError(_failure_text(error)) from None

    return each


def _failure_text(error: Exception) -> str:
    text = str(error)
    interruption = next((name for name in INTERRUPTIONS if name in text), None)
    if interruption is not None:  # so a query is stopped: that is what Spark looks for
        return f"{_PATTERN}An error occurred while calling a batch: {interruption}"
    kind = type(error)
    if kind.__module__.startswith("tidelog."):  # in a line of its own, by which it is known as one of ours
        return f"\n{kind.__module__}.{kind.__name__}: {text}"
    return f"{kind.__name__}: {text}".replace(_PATTERN, "")
