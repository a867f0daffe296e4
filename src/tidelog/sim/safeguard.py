"""A safeguard that can be switched off, and what is put in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

QUORUM = "quorum"
CLUSTER = "cluster"


class Safeguard(NamedTuple):
    """What is put in the place of what, and what that leaves out."""

    of: object
    name: str
    instead: Any
    leaves_out: str
    scenario: str | None = None
    """The one in which it matters; None: any that a seed has."""
