"""Where to start reading a partition, as a person writes it: beginning, end, an offset, the last n, a time."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

OFFSET_MAX = (1 << 63) - 1
AGO = re.compile(r"(\d+)(s|m|h|d)")
AGO_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Kind = Literal["beginning", "end", "offset", "last", "time"]


@dataclass(frozen=True, slots=True)
class Start:
    """A place in every partition. `value` is an offset, a count, or milliseconds since 1970, as `kind` says."""

    kind: Kind
    value: int = 0

    @classmethod
    def parse(cls, text: str, now: datetime) -> "Start":
        """Read `beginning`, `end`, `42` (offset), `-10` (last ten), `15m` (ago) or an ISO 8601 time (local by default).

        Kafka's `earliest` and `latest` are understood, too.
        Raises ValueError with what is allowed.
        """
        if text in ("beginning", "earliest"):
            return cls("beginning")
        if text in ("end", "latest"):
            return cls("end")
        try:
            if text.isdecimal():
                return cls("offset", _offset(text))
            if text.startswith("-") and text[1:].isdecimal():
                return cls("last", _offset(text[1:]))
            if ago := AGO.fullmatch(text):
                moment = now - timedelta(**{AGO_UNITS[ago[2]]: int(ago[1])})
            else:
                moment = datetime.fromisoformat(text)
            return cls("time", max(int(moment.timestamp() * 1000), 0))
        except (ValueError, OverflowError):
            raise ValueError(
                f"{text!r} is no place to start: use beginning (earliest), end (latest), an offset (42), the last "
                "records of each partition (-10), a time ago (15m, 2h, 1d) or a time (2026-01-31T12:00)"
            ) from None


def _offset(text: str) -> int:
    """Raises ValueError where no log can have it."""
    value = int(text)
    if value > OFFSET_MAX:
        raise ValueError
    return value
