"""The differences from Apache Kafka that are meant. Each refers to a section of docs/differences.md that argues it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Found(Protocol):
    """A place where two answers differ; see `compare.Found`."""

    @property
    def label(self) -> str: ...
    @property
    def key(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def ours(self) -> Any: ...
    @property
    def theirs(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """One allowed difference: its section in docs/differences.md, and which places it covers."""

    section: str
    where: Callable[[Found], bool]

    def covers(self, found: Found) -> bool:
        return self.where(found)


def at(label: str, path: str = "") -> Callable[[Found], bool]:
    """Covers steps whose label, and places whose path, match these patterns."""
    return lambda found: bool(re.search(label, found.label) and re.search(path, found.path))


def says_more(found: Found) -> bool:
    """Words where Kafka has none."""
    return found.path.endswith("error_message") and found.ours == "<there>" and found.theirs is None


ALLOWED: tuple[Difference, ...] = (Difference("Errors come with words", says_more),)
