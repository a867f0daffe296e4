"""The ends of a log: how far it reaches, how far that is durable, and where a start after a crash begins to read.

Nobody else assigns them. Everybody may read them: they are plain attributes, since every Produce and Fetch does.

- `log_start`: below it nothing is served.
- `log_end`: what was written ends here.
- `synced_end`: a sync of the segments, or a flush, made everything below it durable.
- `stable_end`: everything below it is on stable storage, in the segments or in the journal (journal.py).
- `durable_end`: what counts as durable. With `tidelog.durability=fsync` that is what was synced, or is in the journal.
  With `os` it is what was written, up to `unsynced_max` records more than were synced (`flush.messages`).
- `recovery_point`: below it segments, indexes, producer snapshot and leader epochs are durable.
- `batches` were written since the last flush began: a start after a crash would read them again.
- `generation` counts truncations: what was begun before one must not count afterwards.
"""

from __future__ import annotations


class Ends:
    """Of one log. `unsynced_max`: so many records count as durable that were written and not synced; 0: none."""

    __slots__ = (
        "batches",
        "durable_end",
        "generation",
        "log_end",
        "log_start",
        "recovery_point",
        "stable_end",
        "synced_end",
        "unsynced_max",
    )

    def __init__(self, offset: int = 0) -> None:
        """Of a log that is empty and goes on at `offset`."""
        self.start_at(offset)
        self.batches = self.generation = 0
        self.unsynced_max = 0

    @classmethod
    def found(cls, *, log_start: int, log_end: int, durable_end: int, recovery_point: int, synced_end: int) -> Ends:
        """As recovery found them."""
        ends = cls(log_start)
        ends.log_end, ends.durable_end = log_end, durable_end
        ends.recovery_point = recovery_point
        ends.synced_end = ends.stable_end = synced_end
        return ends

    def __repr__(self) -> str:
        return f"[{self.log_start}, {self.log_end}) durable to {self.durable_end}"

    # -- forward

    def found_batches(self, count: int) -> None:
        """So many are behind the recovery point."""
        self.batches = count

    def wrote(self, next_offset: int, batches: int = 1) -> bool:
        """So many batches were written, which end at `next_offset`; whether so much isn't synced that it is time to."""
        self.log_end = next_offset
        self.batches += batches
        if next_offset - self.synced_end < self.unsynced_max:
            self.durable_end = next_offset
            return False
        return self.unsynced_max > 0

    def synced(self, end: int) -> bool:
        """Everything below `end` is on stable storage; whether more counts as durable than did."""
        if end > self.synced_end:
            self.synced_end = end
            self.stable_end = max(self.stable_end, end)
        if self.log_end - self.synced_end < self.unsynced_max:
            end = self.log_end
        if end <= self.durable_end:
            return False
        self.durable_end = end
        return True

    def journaled(self, end: int) -> bool:
        """Everything below `end` is on stable storage, in the journal if not in the segments; whether more counts as
        durable than did."""
        self.stable_end = max(self.stable_end, end)
        if end <= self.durable_end:
            return False
        self.durable_end = end
        return True

    def begin_flush(self) -> None:
        self.batches = 0

    def flushed(self, end: int) -> bool:
        """As `synced`, and a start after a crash needs to read nothing below `end`."""
        if end > self.recovery_point:
            self.recovery_point = end
        return self.synced(end)

    def count_unsynced(self, unsynced_max: int, *, all_at_once: bool) -> None:
        """From now on so many count as durable; `all_at_once`: what was written does already, however much it is."""
        self.unsynced_max = unsynced_max
        if all_at_once:
            self.durable_end = self.log_end

    # -- the start

    def move_start(self, offset: int) -> None:
        """Below `offset` nothing is served: further on, or back where that couldn't be saved."""
        assert offset <= self.log_end, f"{self!r}: a start at {offset}"
        self.log_start = offset

    # -- back

    def fall_back(self, offset: int, rest_end: int) -> bool:
        """The log is about to be cut at `offset`, and the batches before that end at `rest_end`.

        Whether the recovery point fell, too: that is made durable before anything is cut.
        """
        self.generation += 1
        self.durable_end = min(self.durable_end, offset)
        self.synced_end = min(self.synced_end, offset)
        self.stable_end = min(self.stable_end, offset)
        fell = rest_end < self.recovery_point
        if fell:
            self.recovery_point = rest_end
        return fell

    def cut(self, offset: int) -> None:
        """Nothing is at `offset` or above any more. `fall_back` came first."""
        assert self.durable_end <= offset, f"{self!r}: cut to {offset}"
        self.log_end = offset
        self.log_start = min(self.log_start, offset)

    def start_at(self, offset: int) -> None:
        """The log is empty and goes on at `offset`, be that further back or further on."""
        self.log_start = self.log_end = self.durable_end = offset
        self.recovery_point = self.synced_end = self.stable_end = offset

    def check_invariants(self) -> None:
        assert 0 <= self.log_start <= self.log_end, repr(self)
        assert self.durable_end <= self.log_end, repr(self)
        assert self.synced_end <= self.stable_end <= self.log_end, (
            f"{self!r}: synced to {self.synced_end}, in the journal to {self.stable_end}"
        )
        assert self.recovery_point <= self.log_end, f"{self!r}: recovery point {self.recovery_point}"
