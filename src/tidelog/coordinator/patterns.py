"""Regular expressions that clients send: RE2's, bounded in what they may cost.

RE2 takes time linear in what it reads, times the size of the expression's program where it has to try all ways at once.
So the length of an expression and the size of its program are bounded here, and whoever matches many names does so a
piece at a time, with `cost` as the measure.
"""

from importlib import import_module
from typing import Any

from tidelog.coordinator.bounds import PATTERN_CHARACTERS_MAX, PATTERN_MEMORY_BYTES_MAX, PATTERN_PROGRAM_MAX


class PatternError(Exception):
    """It isn't an expression of RE2, or is too large."""


def compiled(pattern: str) -> Any:
    """RE2's expression, to be matched against bytes."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise PatternError(f"it is longer than {PATTERN_CHARACTERS_MAX} characters")
    re2: Any = import_module("re2")  # when it is first needed: few brokers ever see an expression
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    options.never_capture = True
    try:
        made = re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = error.args[0]
        raise PatternError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error
    except UnicodeEncodeError as error:
        raise PatternError("it isn't valid text") from error
    if made.programsize > PATTERN_PROGRAM_MAX:
        raise PatternError(f"its program has {made.programsize} instructions, {PATTERN_PROGRAM_MAX} is the most")
    return made


def cost(expression: Any, name: str) -> int:
    """Of matching a name, at the very worst; some for looking at it at all."""
    return 200 + expression.programsize * len(name)
