"""What a batch was made of, kept with the decision on it: so that another one under its number is not taken for it.

A stream's batch is known by the offsets that its query's checkpoint holds for it, where the driver can read that: rows
may differ from one try to the next, by a random number, or a sum in another order. Spark repeats a batch as it planned
it once; one that was planned anew, since a checkpoint was cut back or copied, is the same only if its rows are. So they
are compared, also where nothing is known of what they were made from: how many, and a sum of hashes in which neither
their order nor how they are cut into tasks shows.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from tidelog.spark.checkpoint import planned_batch, query_id

HASHES = 2**64


_NAMES = ("rows", "hash", "input", "target", "topic_id", "topic_ids", "planned")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """None is what isn't known: decisions of earlier versions tell the number of rows, at most."""

    rows: int | None = None
    hash: int | None = None
    input: str | None = None
    """What the rows were made from: offsets of a checkpoint, or what the option jobInput says."""
    target: str | None = None
    """The topic; empty where the rows say where to."""
    topic_id: str | None = None
    topic_ids: Mapping[str, str] | None = None
    """Of the topics that the rows name, where they do."""
    planned: str | None = None
    """When the query planned the batch, and how: the same in a repetition."""

    def difference(self, before: "Fingerprint") -> str | None:
        """In which way a batch is not the one that was decided; None where it is."""
        if _differ(self.target, before.target):
            return f"that one was written to {_topic(before.target)}, and this one is to go to {_topic(self.target)}"
        if _differ(self.topic_id, before.topic_id):
            return _made_again(self.target)
        before_ids = before.topic_ids or {}
        for name, made in (self.topic_ids or {}).items():
            if _differ(made, before_ids.get(name)):
                return _made_again(name)
        if _differ(self.input, before.input):
            return "that one was made from other input"
        rows = self.other_rows(before)
        if rows is None or self.input is None or before.input is None:
            return rows and f"this one {rows}"
        return f"this one was planned anew, and {rows}" if _differ(self.planned, before.planned) else None

    def other_rows(self, before: "Fingerprint") -> str | None:
        """In which way its rows are not those that were decided; that need not make it another batch."""
        if _differ(self.rows, before.rows):
            return f"has {self.rows} rows and that one had {before.rows}"
        return f"has other rows, {self.rows} as well" if _differ(self.hash, before.hash) else None

    def to_json(self) -> dict[str, object]:
        """As it stands in a decision."""
        return {name: value for name in _NAMES if (value := getattr(self, name)) is not None}


UNKNOWN = Fingerprint()


def fingerprint(decision: dict[str, Any]) -> Fingerprint:
    """As a decision has it."""
    return Fingerprint(*(decision.get(name) for name in _NAMES))


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def _made_again(topic: str | None) -> str:
    return f"topic {topic} was deleted and made again since, and holds nothing of it"


def _topic(name: str | None) -> str:
    return f"topic {name}" if name else "the topics that its rows name"


class BatchInput(NamedTuple):
    """What a batch is to be made from, and the rest of what Spark wrote when it planned that: the time, for one."""

    offsets: str
    planned: str


def batch_input(checkpoint: str | None, query: str, batch: int) -> BatchInput | None:
    """What a batch of a query was made from by its checkpoint; None where that can't be read here, or is another's."""
    folder = _local(checkpoint)
    if folder is None:
        return None
    try:
        planned = planned_batch(folder, batch) if query_id(folder) == query else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if planned is None or not planned.sources:
        return None
    return BatchInput(f"offsets-{_hashed(planned.sources)}", _hashed(planned.head))


def _hashed(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _local(place: str | None) -> Path | None:
    """A folder of this machine's, of a path or a file: URI."""
    if not place:
        return None
    url = urlsplit(place)
    if url.scheme not in ("", "file") or url.netloc:
        return None
    return Path(unquote(url.path) if url.scheme else place)
