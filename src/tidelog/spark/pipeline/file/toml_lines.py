"""Where things stand in a TOML file: the line of each key, for errors that point at it."""

import re
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]
"""Where a key stands: the names of the tables around it, a number where there are several, and its own."""

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*("[^"]*"|'[^']*'|[A-Za-z0-9_-]+)((?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=""")


def lines_of(text: str) -> dict[KeyPath, int]:
    """Key path -> line, from 1. Tables and keys; values inside inline tables share their key's line."""
    lines: dict[KeyPath, int] = {(): 1}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    quote: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if quote is not None:
            if line.count(quote) % 2:
                quote = None
            continue
        header = _HEADER.match(line)
        if header:
            names = tuple(part.strip().strip("\"'") for part in header[2].split("."))
            if header[1] == "[[":
                counts[names] = counts.get(names, -1) + 1
                table = (*names, counts[names])
            else:
                table = names
            for depth in range(1, len(table) + 1):
                lines.setdefault(table[:depth], number)
            continue
        key = _KEY.match(line)
        if key:
            names = (key[1].strip("\"'"), *(part.strip() for part in key[2].split(".")[1:]))
            for depth in range(1, len(names) + 1):
                lines.setdefault((*table, *names[:depth]), number)
        if line.lstrip().startswith("#"):
            continue
        for mark in ('"""', "'''"):
            if line.count(mark) % 2:
                quote = mark
    return lines


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int:
    """The line of a path, or of the nearest that encloses it."""
    while path not in lines:
        path = path[:-1]
    return lines[path]
