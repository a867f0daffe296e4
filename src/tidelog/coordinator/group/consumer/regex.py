"""Subscriptions by regular expression: RE2's, matched against whole topic names.

RE2 takes time linear in what it reads, whatever the expression; its length and the size of its program are bounded
here. What an expression matches is remembered, so that when topics come and go only the new names are looked at.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from tidelog.wire.errors import ErrorCode, KafkaError

REGEX_CHARACTERS_MAX = 4000
PROGRAM_BYTES_MAX = 1 << 20
REMEMBERED_MAX = 256
"""Expressions whose matches are remembered, of all groups."""


def check_regex(regex: str) -> None:
    """INVALID_REGULAR_EXPRESSION where RE2 doesn't take it, or it is too large."""
    _compiled(regex)


def _compiled(regex: str) -> Any:
    if len(regex) > REGEX_CHARACTERS_MAX:
        raise _invalid(regex[:100] + "...", f"it is longer than {REGEX_CHARACTERS_MAX} characters")
    re2: Any = import_module("re2")  # when it is first needed: few brokers ever see an expression
    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(regex.encode(), options)
    except re2.error as error:
        reason = error.args[0]
        raise _invalid(regex, reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error
    except UnicodeEncodeError as error:
        raise _invalid(ascii(regex), "it isn't valid text") from error


def _invalid(regex: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
    )


class Matches:
    """What expressions match, remembered together with the names that were looked at."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[str, object], frozenset[str]]] = {}

    def of(self, regex: str, topics: Mapping[str, object]) -> frozenset[str]:
        """The topics that it matches; none where it isn't an expression any more (another version took it)."""
        seen, matched = self._known.pop(regex, ({}, frozenset[str]()))
        if seen is not topics:
            matched = frozenset(matched & topics.keys()) | self._among(regex, topics.keys() - seen.keys())
        self._known[regex] = topics, matched
        if len(self._known) > REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        return matched

    def _among(self, regex: str, names: Iterable[str]) -> frozenset[str]:
        try:
            matches = _compiled(regex).fullmatch
        except KafkaError:
            return frozenset()
        return frozenset(name for name in names if matches(name.encode()))


MATCHES = Matches()
"""Of all groups of this process: matching is a pure function, and this only saves doing it again."""
