"""Lines of the log: one a message, whatever is in it.

Names of topics, groups, members and clients come from whoever can connect, and may hold line breaks or the sequences
that tell a terminal to move, colour or overwrite. Here they lose that: nobody forges a line, and nobody's terminal does
as a client says.
"""

import logging
import re
from time import gmtime, strftime
from types import TracebackType

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MESSAGE_CHARACTERS_MAX = 10_000
"""A message that repeats long names loses its middle."""
TRACE_INDENT = "    "

_CONTROL = "\x00-\x1f\x7f-\x9f\u2028\u2029"  # ends of lines among them
_DIRECTION = "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what is shown in another order than it is written
_UNPRINTABLE = re.compile(f"[{_CONTROL}{_DIRECTION}]")
_UNPRINTABLE_IN_LINES = re.compile(f"(?![\n\t])[{_CONTROL}{_DIRECTION}]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """The text in one line, with control characters written out: `\\n`, `\\x1b`."""
    return text if text.isascii() and text.isprintable() else _UNPRINTABLE.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


class LineFormatter(logging.Formatter):
    """For every handler that writes what a broker logs. A traceback keeps its lines, set in from the left."""

    def __init__(self, fmt: str = LOG_FORMAT) -> None:
        super().__init__(fmt)

    def format(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return super().format(record)
        kept, record.exc_text = record.exc_text, None  # as another formatter wrote it
        try:
            return super().format(record)
        finally:
            record.exc_text = kept

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(_shortened(record.message))
        return super().formatMessage(record)

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return _set_in(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _set_in(stack_info)


class JsonFormatter(LineFormatter):
    """One JSON object a line: time (UTC), level, logger, message, and the traceback where there is one."""

    def __init__(self) -> None:
        super().__init__()
        import json  # a start that writes lines of text does without

        self._dumps = json.dumps

    def format(self, record: logging.LogRecord) -> str:
        seconds = strftime("%Y-%m-%dT%H:%M:%S", gmtime(record.created))
        fields = {
            "time": f"{seconds}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": _shortened(record.getMessage()),
        }
        if record.exc_info:
            fields["trace"] = logging.Formatter.formatException(self, record.exc_info)
        return self._dumps(fields, ensure_ascii=True)


def _shortened(message: str) -> str:
    if len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    half = MESSAGE_CHARACTERS_MAX // 2
    return f"{message[:half]}...{message[-half:]}"


def _set_in(text: str) -> str:
    """The messages of exceptions may hold anything, too: no line of them begins where one of the log does."""
    lines = _UNPRINTABLE_IN_LINES.sub(_written_out, text).split("\n")
    return "\n".join(TRACE_INDENT + line for line in lines)
