"""The one way in which groups and offsets change: record after record, on append as on load."""

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.coordinator.entry import LogEntry, Marker
from tidelog.coordinator.group.classic.replay import REPLAY as CLASSIC
from tidelog.coordinator.group.consumer.replay import REPLAY as CONSUMER
from tidelog.coordinator.group.offsets import Drafts, replay_marker
from tidelog.coordinator.group.state import GroupsState
from tidelog.machine.machine import Position
from tidelog.wire.records.groups import OffsetCommitKey

_REPLAY: dict[type, Callable[[GroupsState, Any, Any], GroupsState]] = {**CLASSIC, **CONSUMER}
"""By the key's class. Offsets aren't among them: they need to know their place in the log, and their transaction."""


def fold(state: GroupsState, entries: Sequence[LogEntry], position: Position) -> GroupsState:
    """The state after `entries`, the last of which stands at `position`."""
    drafts = Drafts(state)
    place = position.offset - len(entries) + 1
    for index, entry in enumerate(entries):
        if isinstance(entry, Marker):
            drafts.state = replay_marker(drafts.finish(), entry)
            continue
        key: object = entry.key
        if isinstance(key, OffsetCommitKey):
            drafts.replay(key, entry.value, entry.producer_id, entry.offset if entry.offset >= 0 else place + index)
            continue
        replay = _REPLAY.get(type(key))
        if replay is not None:
            drafts.state = replay(drafts.finish(), key, entry.value)
    return drafts.finish()
