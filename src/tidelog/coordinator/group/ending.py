"""The end of a transaction with very many offsets: what its marker changes is made ahead, in steps.

A marker is one record, and counts as a whole: its offsets can't be committed in pieces. But maps are immutable: the
one with the transaction's offsets in it is made beside the one that readers see, and takes its place with the marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.entry import Marker
from tidelog.coordinator.group.state import NO_OFFSETS
from tidelog.env.slices import CHEAP_A_STEP, Steps, settled, whole

if TYPE_CHECKING:
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState, Offsets
    from tidelog.env.promise import Promise

FEW = 1000
"""So many offsets are committed when the marker is decided: a millisecond or two."""
A_STEP = 64
VAIN_MAX = 3
"""Only offsets that expire, or whose topic is deleted, come between: after so many times the decision merges them."""


class Merged(NamedTuple):
    """A group's offsets with those of the transaction, as long as neither has changed."""

    pending: Offsets
    before: Offsets
    after: Offsets


def merge(pending: Offsets, before: Offsets) -> Steps[Offsets]:
    """The group's offsets when the transaction is committed: a plain commit that came after it stands."""
    after = before.mutate()
    for place, (partition, committed) in enumerate(pending.items(), 1):
        known = after.get(partition)
        if known is None or committed.record_offset > known.record_offset:
            after[partition] = committed
        if not place % A_STEP:
            yield
    return after.finish()


def merged(marker: Marker, group_id: str, pending: Offsets, before: Offsets) -> Offsets:
    """The same where it was made ahead, of these; else it is made now."""
    ahead: Mapping[str, Merged] = marker.ahead or {}
    made = ahead.get(group_id)
    if made is not None and made.pending is pending and made.before is before:
        return made.after
    return whole(merge(pending, before))


def is_large(state: GroupsState, producer_id: int) -> bool:
    """Whether the producer's transaction has more offsets than can be committed at once."""
    return sum(map(len, state.pending.get(producer_id, {}).values())) > FEW


def prepare(state: GroupsState, marker: Marker) -> Steps[Marker]:
    """The marker with what it changes, where that is much."""
    if not marker.committed or not is_large(state, marker.producer_id):
        return marker
    ahead: dict[str, Merged] = {}
    for group_id, pending in state.pending[marker.producer_id].items():
        before = state.offsets.get(group_id, NO_OFFSETS)
        ahead[group_id] = Merged(pending, before, (yield from merge(pending, before)))
    return marker._replace(ahead=ahead)


def is_prepared(state: GroupsState, marker: Marker) -> bool:
    """Whether nothing has changed since."""
    ahead: Mapping[str, Merged] = marker.ahead or {}
    every = state.pending.get(marker.producer_id, {}).items()
    return all(
        (made := ahead.get(group_id)) is not None
        and made.pending is pending
        and made.before is state.offsets.get(group_id, NO_OFFSETS)
        for group_id, pending in every
    )


def end_transaction(shard: GroupShard, marker: Marker) -> Promise[None]:
    """Write the marker: at once, or when what it changes is prepared, while other changes of its groups wait."""
    newest = shard.machine.newest
    if not is_large(newest, marker.producer_id):
        return shard.write_marker(marker)
    steps = _write(shard, marker)
    for group_id in sorted(newest.pending[marker.producer_id], reverse=True):
        steps = shard.live.offset_changes.alone(group_id, steps)
    return shard.drive(steps)


def _write(shard: GroupShard, marker: Marker) -> Steps[None]:
    held = yield from _replaced(shard.machine.newest, marker.producer_id)
    for _ in range(VAIN_MAX):
        marker = yield from prepare(shard.machine.newest, marker)
        if not marker.committed or is_prepared(shard.machine.newest, marker):
            break
    yield from settled(shard.write_marker(marker))
    while held:
        del held[-CHEAP_A_STEP:]
        yield


def _replaced(state: GroupsState, producer_id: int) -> Steps[list[object]]:
    """All that the marker may let go of: held until it can be let go of in steps, since that takes its time too."""
    held: list[object] = []
    for group_id, pending in state.pending.get(producer_id, {}).items():
        for place, item in enumerate(chain(pending.items(), state.offsets.get(group_id, NO_OFFSETS).items()), 1):
            held += item
            if not place % CHEAP_A_STEP:
                yield
    return held
