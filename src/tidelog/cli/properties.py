"""Kafka's own form of a settings file, `server.properties`: Java's properties, as `java.util.Properties` reads them."""

from collections.abc import Iterator

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Name -> value, the last where a name stands there twice. ValueError for an escape that is none."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        values[_unescape(name)] = _unescape(value).strip()
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without blanks in front, comments left out, and joined where one ends in an odd number of backslashes."""
    begun: str | None = None
    for line in text.splitlines():
        line = line.lstrip(_BLANK)
        if begun is None and (not line or line[0] in "#!"):
            continue
        whole = (begun or "") + line
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            begun = whole[:-1]
        else:
            begun = None
            yield whole
    if begun:
        yield begun


def _split(line: str) -> tuple[str, str]:
    """At the first `=`, `:` or blank that no backslash stands before."""
    pos = 0
    while pos < len(line) and line[pos] not in "=:" + _BLANK:
        pos += 2 if line[pos] == "\\" else 1
    name, rest = line[:pos], line[pos:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return name, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    pos = 0
    while pos < len(text):
        if text[pos] != "\\":
            parts.append(text[pos])
            pos += 1
        elif text[pos + 1 : pos + 2] == "u":
            parts.append(chr(int(text[pos + 2 : pos + 6].ljust(4, "?"), 16)))
            pos += 6
        else:
            escaped = text[pos + 1 : pos + 2]
            parts.append(_ESCAPES.get(escaped, escaped))
            pos += 2
    return "".join(parts)
