"""OffsetChanges of a group's offsets that are written in pieces: one at a time, and what else changes them waits.

A batch has a bound, and so has a turn of the loop: a commit of ten thousand offsets, or their removal, is several
decisions. To others it is to be one, as it is in Kafka: nobody commits to, or deletes, half of such a change. What
changes members needn't wait: each piece looks at them anew.
"""

from __future__ import annotations

from typing import TypeVar

from tidelog.env.promise import Promise
from tidelog.env.slices import Steps, settled

T = TypeVar("T")


class OffsetChanges:
    """Of the groups of one shard, by group id."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, Promise[None]] = {}
        """Resolved when the last change that was asked for has ended, with all before it."""

    def under_way(self, group_id: str) -> bool:
        return group_id in self._last

    def alone(self, group_id: str, steps: Steps[T]) -> Steps[T]:
        """`steps`, when all changes before it have ended; the next begins when this one has, whatever came of it."""
        before, ended = self._last.get(group_id), Promise[None]()
        self._last[group_id] = ended

        def end(_: object) -> None:
            if self._last.get(group_id) is ended:
                del self._last[group_id]
            ended.resolve(None)

        try:
            if before is not None:
                yield from settled(before)
            return (yield from steps)
        finally:
            if before is None or before.done:
                end(None)
            else:  # it was given up while it waited
                before.on_done(end)
