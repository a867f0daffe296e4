"""What every decision returns, whoever decides: controller, transactions, groups of either protocol.

A decision is a function of the state, of what is asked, and of the time. It changes nothing that the log holds and
tells nobody: it returns the records that it wants written, and the answer to be given once they are. The records are
folded into the state by the machine, and that is the one way in which the state changes (`machine.py`).
"""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from tidelog.env.promise import Promise

R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Decision(NamedTuple, Generic[R_co, T_co]):
    """Records to be written, all or none of them, and the answer that leaves when they are committed."""

    records: Sequence[R_co]
    answer: T_co


class Submission(NamedTuple, Generic[T]):
    """A decision that was handed to a machine: `promise` is its answer, for whoever asked, once it is committed.

    `decided` is the same answer as soon as the records are appended, for the shell that handed it in: what isn't in the
    log (deadlines, who waits) follows the newest state, not the committed one. None: it was refused, or wasn't written.
    """

    promise: Promise[T]
    decided: T | None
