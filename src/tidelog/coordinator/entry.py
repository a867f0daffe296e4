"""What a coordinator's log holds, decoded: records with their transaction, and the markers that end transactions."""

from typing import Any, NamedTuple, TypeAlias


class Entry(NamedTuple):
    """One record. `producer_id >= 0`: part of that producer's open transaction."""

    key: Any
    """The declared key, such as `OffsetCommitKey`."""
    value: Any
    """The declared value; None is a tombstone."""
    producer_id: int = -1
    producer_epoch: int = -1
    offset: int = -1
    """Where it was read from; -1 while it is being appended: then a batch's entries end at the fold's position."""
    version: int | None = None
    """The version in which the value is to be written; None: the newest."""


class Marker(NamedTuple):
    """A producer's transaction ended: what it wrote here counts if `committed`, else never."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int = 0
    offset: int = -1
    ahead: Any = None
    """What its fold changes, where that was made ahead; it isn't written."""


LogEntry: TypeAlias = "Entry | Marker"
