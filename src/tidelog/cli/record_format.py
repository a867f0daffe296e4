"""Records as a template writes them: `tidelog consume --format`, with kcat's letters."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.cli.record_text import printable

if TYPE_CHECKING:
    from tidelog.client import Message

LETTERS: "dict[str, Callable[[Message], str]]" = {
    "t": lambda message: message.topic,
    "p": lambda message: str(message.partition),
    "o": lambda message: str(message.offset),
    "k": lambda message: printable(message.key),
    "s": lambda message: printable(message.value),
    "v": lambda message: printable(message.value),
    "T": lambda message: str(message.timestamp_ms),
    "h": lambda message: ",".join(f"{name}={printable(value)}" for name, value in message.headers),
    "K": lambda message: str(-1 if message.key is None else len(message.key)),
    "S": lambda message: str(-1 if message.value is None else len(message.value)),
}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
LETTERS_TEXT = (
    "%t topic, %p partition, %o offset, %k key, %s or %v value, %T timestamp, %h headers, %K and %S lengths of key and "
    "value, %% a percent sign"
)

_PART = re.compile(r"%(.?)|\\x([0-9a-fA-F]{2})|\\([ntr0\\])|([^%\\]+|\\)", re.DOTALL)


def compile_format(template: str) -> "Callable[[Message], str]":
    """What writes a record; ValueError for a letter that isn't known."""
    parts: list[str | Callable[[Message], str]] = []
    for match in _PART.finditer(template):
        letter, code, escape, text = match.groups()
        if text is not None:
            parts.append(text)
        elif escape is not None:
            parts.append(ESCAPES[escape])
        elif code is not None:
            parts.append(chr(int(code, 16)))
        elif letter == "%":
            parts.append("%")
        elif letter in LETTERS:
            parts.append(LETTERS[letter])
        else:
            raise ValueError(f"%{letter} is not known: there are {LETTERS_TEXT}")
    return lambda message: "".join(part if isinstance(part, str) else part(message) for part in parts)
