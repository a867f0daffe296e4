"""Why a run ended, in one sentence: what Spark, Java and Python say of it is pages long."""

import re
from collections.abc import Iterable
from typing import Any

_RAISED = re.compile(r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout)\b(?::|$)")
"""The line of a traceback that names the error."""
_MISSING_METHOD = re.compile(r"'[\w.$\[\]]+ [\w.$]+\.[\w<>$]+\(.*\)'$")
"""All that Java says of a method that a class no longer has."""
_CALLED_JAVA = "An error occurred while calling"


def reason_of(failure: Any) -> str:
    """The line of a stream's failure that says why: the last error of Python's or Java's, or else the first line."""
    text = str(failure)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = own_reason(lines)
    if own is not None:
        return own.replace("set failOnDataLoss=false", "set ignore_loss = true in its source")
    if lines and _MISSING_METHOD.match(lines[0]):
        return f"a jar in [spark] is built for another version of Spark: it wants {lines[0]}"
    raised = [line for line in lines if _RAISED.match(line)]
    if raised and _CALLED_JAVA in raised[-1]:  # py4j tells of Java's error in the next line
        raised += [line[2:] for line in lines if line.startswith(": ")][:1]
    return raised[-1] if raised else lines[0] if lines else text


def own_reason(lines: Iterable[str]) -> str | None:
    """What the last error of Tidelog's among these lines says, where there is one."""
    own = [line for line in lines if line.startswith("tidelog.") and ": " in line]
    return own[-1].partition(": ")[2] if own else None


def words_of(error: BaseException) -> str:
    """The first line of an error: of Java's own words, where it came from there."""
    thrown: Any = getattr(error, "java_exception", None)
    text = str(error) if thrown is None else str(thrown.getMessage() or thrown)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
