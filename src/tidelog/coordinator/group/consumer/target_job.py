"""Large targets: computed in steps from the group as it is, and written when it is still such a group.

A decision that finds a target due which takes long to compute leaves it to this; members learn of it by their next
heartbeats, as they do of every target that somebody else's heartbeat brought about. What happens meanwhile:

- Members come, or topics change: the group epoch grows. The target is that of its own epoch, and the next one follows.
- Members go, or come back under another id: what they would have got is nobody's, so it is computed anew. Where that
  happens again and again, the next heartbeat computes it in one go, however long that takes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.coordinator.group.consumer.target import compute_target, preferred_assignor
from tidelog.coordinator.shard_log import EncodedEntries
from tidelog.env.slices import Steps, settled
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.coordinator.entry import Entry
    from tidelog.coordinator.group.consumer.live import LiveConsumerGroup
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.env.promise import Promise

log = logging.getLogger("tidelog.groups")

AT_ONCE_US = 10_000
VAIN_MAX = 3
RETRY_S = 10.0
"""After how long one that could not be written is computed again."""


def computes_us(live: LiveConsumerGroup) -> float:
    """How long a decision may take to compute a target."""
    return float("inf") if live.vain >= VAIN_MAX else AT_ONCE_US


def target_decided(
    coordinator: GroupCoordinator, shard: GroupShard, group_id: str, live: LiveConsumerGroup, *, wanted: bool
) -> None:
    """A decision was taken which left a target to be computed, or didn't."""
    if not wanted:
        live.vain = 0
    elif not live.assigning:
        live.assigning = True
        _begin(coordinator, shard, group_id, live)


def _begin(coordinator: GroupCoordinator, shard: GroupShard, group_id: str, live: LiveConsumerGroup) -> None:
    def over() -> None:
        live.assigning = False

    def ended(promise: Promise[None]) -> None:
        error = promise.error
        if error is None:
            over()
            return
        known = isinstance(error, KafkaError | OSError)
        log.warning("group %s: its assignment isn't made: %s", group_id, error, exc_info=None if known else error)
        if shard.leads:
            shard.schedule(RETRY_S, over)

    shard.drive(_assign(coordinator, shard, group_id, live)).on_done(ended)


def _assign(coordinator: GroupCoordinator, shard: GroupShard, group_id: str, live: LiveConsumerGroup) -> Steps[None]:
    while shard.leads and live.vain < VAIN_MAX:
        group = shard.machine.newest.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or group.target_epoch >= group.epoch:
            return
        entries = yield from _computed(coordinator, shard, group)
        if (yield from settled(shard.submit(_decision(group, entries)))):
            live.vain = 0
            return
        live.vain += 1


def _computed(coordinator: GroupCoordinator, shard: GroupShard, group: ConsumerGroup) -> Steps[EncodedEntries]:
    now_ms = shard.clock.now_ms()
    assignor = preferred_assignor(group.members, coordinator.config.group_consumer_assignors[0])
    image = coordinator.metadata.image
    entries, _ = yield from compute_target(
        group, group.epoch, group.members, {}, group.resolved, assignor, image, now_ms
    )
    encoded = EncodedEntries(now_ms)
    for entry in entries:
        if not shard.encode(entry, encoded):
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "it doesn't fit a batch of its topic's max.message.bytes")
        yield
    return encoded


def _decision(group: ConsumerGroup, entries: EncodedEntries) -> Callable[[GroupsState, int], Decision[Entry, bool]]:
    def decide(state: GroupsState, now_ms: int) -> Decision[Entry, bool]:
        """Whether it was still a group with these members, and nobody else wrote a target."""
        present = state.groups.get(group.id)
        if (
            not isinstance(present, ConsumerGroup)
            or present.target is not group.target
            or present.target_epoch != group.target_epoch
            or present.epoch < group.epoch
        ):
            return Decision((), False)
        if any(member_id not in present.members for member_id in group.members):
            return Decision((), False)
        return Decision(entries, True)

    return decide
