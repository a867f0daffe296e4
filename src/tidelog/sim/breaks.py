"""Safeguards that can be switched off, to see whether the simulator finds out: `python -m tidelog.sim --break NAME`.

What each of them guards against is only found where it matters what somebody was promised: none of them makes an
assertion of the broker itself fail.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from tidelog.log import journal, recovery
from tidelog.log.journal_replay import additions
from tidelog.sim.world.disk import SimFixedFile

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any


class Safeguard(NamedTuple):
    """What is put in the place of what, and what that leaves out."""

    of: object
    name: str
    instead: Any
    leaves_out: str


def _first_only(*given: Any) -> Any:
    return additions(*given)[:1]


def _nothing(*_: object) -> None:
    """In the place of something that matters."""


def _always(*_: object) -> bool:
    return True


SAFEGUARDS = {
    "journal-sync": Safeguard(SimFixedFile, "sync", _nothing, "a commit's sync of the journal"),
    "journal-replay": Safeguard(
        recovery, "additions", _first_only, "all but the first of what the journal has of a log"
    ),
    "journal-reuse": Safeguard(
        journal, "_is_settled", _always, "waiting for segments to be durable before the journal is used anew"
    ),
    "journal-void": Safeguard(
        journal.Journal, "void", _nothing, "noting that what the journal has of a log that is cut doesn't count"
    ),
}


@contextmanager
def switched_off(name: str | None) -> Generator[None]:
    """Without this safeguard; None: with all of them."""
    if name is None:
        yield
        return
    safeguard = SAFEGUARDS[name]
    with patch.object(safeguard.of, safeguard.name, safeguard.instead):
        yield
