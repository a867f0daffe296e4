"""What clients wrote down, as values: one diary a client, one event a line of JSON.

Times are those of the machine's monotonic clock, which all processes share. A value says nothing by itself: where it
was sent, in which transaction and made of what stands in the diary of who sent it, and no value is ever sent twice.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"

Place = tuple[str, int]
"""A topic and a partition."""


class Source(NamedTuple):
    """The record that another one was made of."""

    topic: str
    partition: int
    offset: int


class Sent(NamedTuple):
    """Given to the client's library; `transaction` is the producer's own count."""

    at_s: float
    place: Place
    value: str
    transaction: int | None = None
    source: Source | None = None


class Acked(NamedTuple):
    """Acknowledged by all in-sync replicas. `offset` is -1 where the broker only said that it has it already."""

    at_s: float
    place: Place
    offset: int
    value: str


class Failed(NamedTuple):
    """The library gave it up: it may be there or not."""

    at_s: float
    value: str
    why: str


class Ending(NamedTuple):
    """The end of a transaction is asked for from now on."""

    at_s: float
    transaction: int
    commit: bool


class Ended(NamedTuple):
    """What the library said of it: COMMITTED, ABORTED or UNKNOWN."""

    at_s: float
    transaction: int
    outcome: str


class Given(NamedTuple):
    """Partitions that are read from now on, or from another position: an assignment of each begins."""

    at_s: float
    places: tuple[Place, ...]


class Taken(NamedTuple):
    """Partitions that aren't read any more."""

    at_s: float
    places: tuple[Place, ...]


class Read(NamedTuple):
    at_s: float
    place: Place
    offset: int
    value: str


class Moved(NamedTuple):
    """Offsets that a group committed, alone or in a transaction that is known to be committed."""

    at_s: float
    offsets: tuple[tuple[Place, int], ...]


class Trouble(NamedTuple):
    """Something that the library told, and that the client lived through."""

    at_s: float
    why: str


class GaveUp(NamedTuple):
    """An error after which this client can't go on as it should."""

    at_s: float
    why: str


Event = Sent | Acked | Failed | Ending | Ended | Given | Taken | Read | Moved | Trouble | GaveUp


@dataclass(slots=True)
class Diary:
    """One client's, in the order in which things happened to it."""

    name: str
    group: str | None = None
    read_committed: bool = False
    events: list[Event] = field(default_factory=list[Event])


class Stored(NamedTuple):
    """What a partition holds in the end, as (offset, value): everything, and what is shown to read_committed."""

    everything: list[tuple[int, str]]
    committed: list[tuple[int, str]]


@dataclass(slots=True)
class Final:
    """What was read when all faults were over."""

    partitions: dict[Place, Stored] = field(default_factory=dict[Place, Stored])
    offsets: dict[str, dict[Place, int]] = field(default_factory=dict[str, dict[Place, int]])
    """What each group committed."""


def read_diary(path: Path) -> Diary:
    """A last line that was torn, since its writer was killed, is passed over."""
    diary: Diary | None = None
    with open(path) as lines:
        for line in lines:
            if not line.endswith("\n"):
                break
            told = json.loads(line)
            if diary is None:
                diary = Diary(told["client"], told.get("group"), bool(told.get("read_committed")))
            else:
                diary.events.append(event_of(told))
    return diary or Diary(path.stem)


def event_of(told: Mapping[str, Any]) -> Event:
    at_s: float = told["at"]
    match told["is"]:
        case "sent":
            source = told.get("source")
            made_of = None if source is None else Source(*source)
            return Sent(at_s, _place(told["place"]), told["value"], told.get("transaction"), made_of)
        case "acked":
            return Acked(at_s, _place(told["place"]), told["offset"], told["value"])
        case "failed":
            return Failed(at_s, told["value"], told["why"])
        case "ending":
            return Ending(at_s, told["transaction"], told["commit"])
        case "ended":
            return Ended(at_s, told["transaction"], told["outcome"])
        case "given":
            return Given(at_s, _places(told["places"]))
        case "taken":
            return Taken(at_s, _places(told["places"]))
        case "read":
            return Read(at_s, _place(told["place"]), told["offset"], told["value"])
        case "moved":
            return Moved(at_s, tuple((_place(place), offset) for place, offset in told["offsets"]))
        case "trouble":
            return Trouble(at_s, told["why"])
        case "gave-up":
            return GaveUp(at_s, told["why"])
        case other:
            raise ValueError(f"no client writes {other!r}")


def _place(told: list[Any]) -> Place:
    return told[0], told[1]


def _places(told: Iterable[list[Any]]) -> tuple[Place, ...]:
    return tuple(_place(place) for place in told)
