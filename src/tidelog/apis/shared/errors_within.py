"""The errors in an answer: of the request as a whole, and of each thing that it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.env.slices import Steps
    from tidelog.wire.errors import ErrorCode

PARTS_A_STEP = 64


def says(response: Any, code: ErrorCode) -> Steps[bool]:
    """Whether the answer, or anything in it, has this error."""
    for number, part in enumerate(with_errors(response), 1):
        if part.error_code == code:
            return True
        if not number % PARTS_A_STEP:
            yield
    return False


def with_errors(message: Any) -> Iterator[Any]:
    """The message, and those in it, that have an error code."""
    fields = message.__dataclass_fields__
    if "error_code" in fields:
        yield message
    for name in fields:
        value = getattr(message, name)
        for part in cast("list[Any]", value) if isinstance(value, list) else (value,):
            if hasattr(part, "__dataclass_fields__"):
                yield from with_errors(part)
