"""Where to start reading a partition, as a person writes it: beginning, end, an offset, the last n, a time."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

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

        Raises ValueError with what is allowed.
        """
        if text == "beginning":
            return cls("beginning")
        if text == "end":
            return cls("end")
        if text.isdecimal():
            return cls("offset", int(text))
        if text.startswith("-") and text[1:].isdecimal():
            return cls("last", int(text[1:]))
        if ago := AGO.fullmatch(text):
            moment = now - timedelta(**{AGO_UNITS[ago[2]]: int(ago[1])})
            return cls("time", int(moment.timestamp() * 1000))
        try:
            return cls("time", int(datetime.fromisoformat(text).timestamp() * 1000))
        except ValueError:
            raise ValueError(
                f"{text!r} is no place to start: use beginning, end, an offset (42), the last records of each "
                "partition (-10), a time ago (15m, 2h, 1d) or a time (2026-01-31T12:00)"
            ) from None
