"""Letting go of a large message bit by bit: to free half a million objects at once takes a tenth of a second."""

from collections.abc import Generator
from typing import Any

from tidelog.wire.bounds import ELEMENTS_A_STEP
from tidelog.wire.schema import Array, Structure, schema


def release(message: object) -> Generator[None]:
    """Empty the arrays of a message that nobody needs any more; yields after every few elements."""
    for field in schema(type(message)).fields:
        if isinstance(field.kind, Array):
            elements: list[Any] | None = getattr(message, field.name)
            if elements:
                yield from release_list(elements, nested=isinstance(field.kind.of, Structure))


def release_list(elements: list[Any], *, nested: bool) -> Generator[None]:
    """Empty a list. `nested`: its elements are structures that may have arrays of their own."""
    while elements:
        last = elements[-ELEMENTS_A_STEP:]
        del elements[-ELEMENTS_A_STEP:]
        if nested:
            for element in last:
                yield from release(element)
        yield
