"""Subscriptions by regular expression: RE2's, matched against whole topic names.

What an expression matches is remembered, so that when topics come and go only the new names are looked at. Where there
are too many of them for one turn of the loop, the next heartbeat goes on where this one left off.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.coordinator.bounds import MATCH_COST_AT_ONCE, NAMES_REMEMBERED_MAX, REMEMBERED_MAX
from tidelog.coordinator.patterns import PatternError, compiled, cost
from tidelog.wire.errors import ErrorCode, KafkaError

_TOLD_MAX = 100
_UNCHANGED_COST = 50
_COMPILING_COST = 500


def check_regex(regex: str) -> None:
    """INVALID_REGULAR_EXPRESSION where RE2 doesn't take it, or it is too large."""
    try:
        compiled(regex)
    except PatternError as error:
        shown = ascii(regex[:_TOLD_MAX])[1:-1] + "..." if len(regex) > _TOLD_MAX or not regex.isprintable() else regex
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {error}.",
        ) from error


class Room:
    """What one decision may spend on matching."""

    __slots__ = ("left",)

    def __init__(self, left: int = MATCH_COST_AT_ONCE) -> None:
        self.left = left


class _Known:
    """What one expression matches among `topics`; `names` of them are still to be looked at."""

    __slots__ = ("expression", "matched", "names", "topics")

    def __init__(self, expression: Any) -> None:
        self.expression = expression
        self.topics: Mapping[str, object] = {}
        self.matched: frozenset[str] = frozenset()
        self.names: Iterator[str] | None = None

    def turn_to(self, topics: Mapping[str, object]) -> None:
        """Other topics: what came is to be looked at, and all where the last look wasn't over."""
        if self.names is None:
            self.matched = frozenset(self.matched & topics.keys())
            self.names = iter(topics.keys() - self.topics.keys())
        else:
            self.matched, self.names = frozenset(), iter(topics)
        self.topics = topics

    def look(self, room: Room) -> bool:
        """Go on looking; whether that is over."""
        if self.names is None:
            return True
        names: list[str] = []
        matches = self.expression.fullmatch
        while room.left > 0:
            name = next(self.names, None)
            if name is None:
                self.names = None
                break
            room.left -= cost(self.expression, name)
            if matches(name.encode()):
                names.append(name)
        self.matched |= frozenset(names)
        return self.names is None


class Matches:
    """What expressions match, remembered together with the names that were looked at; one for all groups of a broker.

    Matching is a function of the expression and the names: this only saves doing it again.
    """

    __slots__ = ("_known", "_names")

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._names = 0

    def of(self, regex: str, topics: Mapping[str, object], room: Room) -> frozenset[str] | None:
        """The topics that it matches; None where there is no room left to find out: ask again.

        An expression that isn't one any more (another version took it) matches none.
        """
        room.left -= _UNCHANGED_COST
        known = self._known.get(regex)
        if room.left <= 0 and (known is None or known.topics is not topics):
            return None
        known = self._known.pop(regex, None)
        if known is None:
            try:
                known = _Known(compiled(regex))
            except PatternError:
                return frozenset()
            room.left -= known.expression.programsize * _COMPILING_COST
        else:
            self._names -= len(known.matched)
        if known.topics is not topics:
            room.left -= len(topics)
            known.turn_to(topics)
        is_over = known.look(room)
        self._remember(regex, known)
        return known.matched if is_over else None

    def _remember(self, regex: str, known: _Known) -> None:
        self._known[regex] = known
        self._names += len(known.matched)
        while len(self._known) > REMEMBERED_MAX or (self._names > NAMES_REMEMBERED_MAX and len(self._known) > 1):
            oldest = next(iter(self._known))
            self._names -= len(self._known.pop(oldest).matched)
