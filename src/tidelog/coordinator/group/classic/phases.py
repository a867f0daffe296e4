"""The phases of a classic group: which may follow which, and why what members see is safe.

                    join                     all joined, or time is up
    Empty ----------------> PreparingRebalance <------------------+
      ^                        |         ^                        |
      |        nobody joined   |         |  a member comes, goes, |
      +------------------------+         |  or changes            |
                               | some    |                        |
                               v         |                        |
                        CompletingRebalance ----------------> Stable
                                             the leader's assignment
                                             is committed

What is promised to members, and what keeps it:

- *A generation has one leader and one protocol.* Both are chosen at the one transition that raises the generation
  (PreparingRebalance to CompletingRebalance) and hold until the next; a member id that leaves takes the group back
  to PreparingRebalance, and a static leader that is replaced keeps its assignment, so it is not asked for another.
- *An assignment belongs to its generation.* SyncGroup is refused unless it names the present generation and a member
  of it. What the leader hands in first is told to nobody before its record is committed, and to nobody at all where the
  group has left CompletingRebalance, or gone on to another generation, by then. What it hands in again counts for
  nothing: the log and the members hold the same.
- *A generation never falls.* It is raised by one at each transition out of PreparingRebalance, never set. The log holds
  those that were handed out: a generation that was begun and never assigned may be begun again by the next
  coordinator, but none of its members was given anything to work on.
- *Everybody is answered.* A JoinGroup waits in PreparingRebalance only (or for the record of a replaced static member),
  a SyncGroup in CompletingRebalance only; both phases end by a deadline, and leaving them answers who waits.
- *A group in a generation has members*: whoever takes the last one away ends in Empty, with a record that says so.
"""

from enum import Enum


class Phase(Enum):
    """The value is the name that clients are told."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.EMPTY: frozenset({Phase.PREPARING, Phase.DEAD}),
    Phase.PREPARING: frozenset({Phase.COMPLETING, Phase.EMPTY, Phase.DEAD}),
    Phase.COMPLETING: frozenset({Phase.STABLE, Phase.PREPARING, Phase.DEAD}),
    Phase.STABLE: frozenset({Phase.PREPARING, Phase.DEAD}),
    Phase.DEAD: frozenset(),
}
"""Dead is a group that isn't coordinated here any more: it was deleted, or its partition has another leader."""

IN_GENERATION = frozenset({Phase.COMPLETING, Phase.STABLE})
"""Phases in which members hold the group's present generation."""
