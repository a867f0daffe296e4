"""The one way in which groups and offsets change: record after record, on append as on load."""

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.coordinator.entry import LogEntry, Marker
from tidelog.coordinator.group import offsets
from tidelog.coordinator.group.classic.replay import REPLAY as CLASSIC
from tidelog.coordinator.group.consumer.replay import REPLAY as CONSUMER
from tidelog.coordinator.group.state import GroupsState
from tidelog.machine.machine import Position
from tidelog.wire.records.groups import OffsetCommitKey

_REPLAY: dict[type, Callable[[GroupsState, Any, Any], GroupsState]] = {**CLASSIC, **CONSUMER}
"""By the key's class. Offsets aren't among them: they need to know their place in the log, and their transaction."""


def fold(state: GroupsState, entries: Sequence[LogEntry], position: Position) -> GroupsState:
    """The state after `entries`, the last of which stands at `position`."""
    place = position.offset - len(entries) + 1
    for index, entry in enumerate(entries):
        offset = entry.offset if entry.offset >= 0 else place + index
        if type(entry) is Marker:
            state = offsets.replay_marker(state, entry)
            continue
        kind = type(entry.key)
        if kind is OffsetCommitKey:
            state = offsets.replay(state, entry.key, entry.value, entry.producer_id, offset)
        else:
            replay = _REPLAY.get(kind)
            if replay is not None:
                state = replay(state, entry.key, entry.value)
    return state
