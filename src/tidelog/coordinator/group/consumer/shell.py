"""Where the consumer protocol's decisions become real: they are submitted, and deadlines follow from them.

A decision runs on the shard at once; what it wrote is folded then, and the answer leaves when that is committed. So a
member's deadlines are moved as soon as its request was decided, not when it is answered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.config.group import GROUP_RESOURCE
from tidelog.coordinator.group.consumer.context import DecisionContext
from tidelog.coordinator.group.consumer.departures import Gone, fence
from tidelog.coordinator.group.consumer.live import NEVER, Deadlines, LiveConsumerGroup, forget
from tidelog.coordinator.group.consumer.state import ConsumerGroup, Member, MemberState
from tidelog.coordinator.group.consumer.target_job import computes_us
from tidelog.coordinator.group.consumer.terms import Terms, terms_of
from tidelog.coordinator.group.names import some
from tidelog.machine.decision import Decision

if TYPE_CHECKING:
    from tidelog.coordinator.entry import Entry
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.metadata.image import ClusterImage

log = logging.getLogger("tidelog.groups")

REGEX_REFRESH_MIN_MS = 10_000
"""Expressions aren't matched against new topics more often than this."""
RETRY_S = 0.5
"""After how long members that are late are taken out again where that couldn't be written."""


def live_of(shard: GroupShard, group_id: str) -> LiveConsumerGroup:
    """What is live of the group; it is kept once the group is."""
    return shard.live.consumer.get(group_id) or LiveConsumerGroup()


def context_of(
    coordinator: GroupCoordinator, live: LiveConsumerGroup, group: ConsumerGroup | None, group_id: str, now_ms: int
) -> DecisionContext:
    image = coordinator.metadata.image
    terms = _terms(coordinator, live, group_id, image)
    return DecisionContext(
        image,
        terms,
        now_ms,
        coordinator.matches,
        coordinator.migration.downgrade,
        compare_topics=live.topics is not image.topics_shape or live.brokers is not image.brokers,
        refresh_regexes=group is not None and _regexes_are_due(live, group, image, terms, now_ms),
        computes_us=computes_us(live),
    )


def _terms(coordinator: GroupCoordinator, live: LiveConsumerGroup, group_id: str, image: ClusterImage) -> Terms:
    config, overrides = coordinator.config, image.configs.get((GROUP_RESOURCE, group_id))
    terms = live.terms
    if terms is None or live.config is not config or live.overrides is not overrides:
        terms = live.terms = terms_of(group_id, config, image)
        live.config, live.overrides = config, overrides
    return terms


def _regexes_are_due(
    live: LiveConsumerGroup, group: ConsumerGroup, image: ClusterImage, terms: Terms, now_ms: int
) -> bool:
    if not any(subscription.regex for subscription in group.subscriptions):
        return False
    if any(regex not in group.resolved for regex in group.regexes()):
        return True
    last_ms = live.regexes_ms or max(matches.timestamp_ms for matches in group.resolved.values())
    if 0 <= now_ms - last_ms <= REGEX_REFRESH_MIN_MS:
        return False
    return live.regexes_topics is not image.topics_shape or not 0 <= now_ms - last_ms <= terms.regex_refresh_interval_ms


def looked_at(live: LiveConsumerGroup, context: DecisionContext, *, compared: bool, resolved: bool) -> None:
    """The decision that saw this context was taken."""
    if compared:
        live.topics, live.brokers = context.image.topics_shape, context.image.brokers
    if context.refresh_regexes and resolved:
        live.regexes_topics, live.regexes_ms = context.image.topics_shape, context.now_ms


def heard_of(
    coordinator: GroupCoordinator,
    shard: GroupShard,
    group_id: str,
    live: LiveConsumerGroup,
    member: Member,
    session_timeout_ms: int,
    *,
    moved: bool,
) -> Deadlines:
    """The member is alive. `moved`: its assignment may be another one now."""
    now_s = shard.clock.monotonic()
    deadlines = live.of(member.id)
    deadlines.session_s = now_s + session_timeout_ms / 1000
    live.wake_by(deadlines.session_s)
    if moved and member.classic is None:
        if member.state == MemberState.UNREVOKED:
            deadlines.rebalance_s = now_s + member.rebalance_timeout_ms / 1000
            deadlines.rebalance_epoch = member.epoch
            live.wake_by(deadlines.rebalance_s)
        else:
            deadlines.rebalance_s = NEVER
    keep(coordinator, shard, group_id, live)
    return deadlines


def resume(coordinator: GroupCoordinator, shard: GroupShard, group: ConsumerGroup) -> None:
    """The group was loaded: its members' sessions begin anew, since heartbeats may have gone elsewhere."""
    live = LiveConsumerGroup()
    session_ms = _terms(coordinator, live, group.id, coordinator.metadata.image).session_timeout_ms
    for _, member in sorted(group.members.items()):
        own_ms = session_ms if member.classic is None else member.classic.session_timeout_ms
        heard_of(coordinator, shard, group.id, live, member, own_ms, moved=True)


def keep(coordinator: GroupCoordinator, shard: GroupShard, group_id: str, live: LiveConsumerGroup) -> None:
    """Keep it, and its timer set for the next deadline."""
    shard.live.consumer[group_id] = live
    if live.wake_s >= live.alarm_s or not shard.leads:
        return
    if live.alarm is not None:
        live.alarm.cancel()
    delay_s = max(live.wake_s - shard.clock.monotonic(), 0.0)
    live.alarm_s = live.wake_s
    live.alarm = shard.schedule(delay_s, lambda: _ring(coordinator, shard, group_id, live))


def _ring(coordinator: GroupCoordinator, shard: GroupShard, group_id: str, live: LiveConsumerGroup) -> None:
    live.alarm, live.alarm_s = None, NEVER
    if shard.live.consumer.get(group_id) is not live:
        return
    late = live.due(shard.clock.monotonic())
    if late:
        _take_out(coordinator, shard, group_id, live, late)
    if shard.live.consumer.get(group_id) is live:
        keep(coordinator, shard, group_id, live)


def _take_out(
    coordinator: GroupCoordinator, shard: GroupShard, group_id: str, live: LiveConsumerGroup, late: list[str]
) -> None:
    """Those that are late go: not heard of, or still in the epoch in which they should have given something up."""
    now_s = shard.clock.monotonic()

    def decide(state: GroupsState, now_ms: int) -> Decision[Entry, Gone]:
        group = state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return Decision((), Gone(()))
        members = [
            member
            for member in map(group.members.get, late)
            if member is not None and _is_late(live.members[member.id], member, now_s)
        ]
        return fence(group, members, context_of(coordinator, live, group, group_id, now_ms))

    promise, gone = shard.hand_in(decide)
    if gone is None:
        log.warning("group %s: %s could not be taken out: %s", group_id, some(late), promise.error)
        live.wake_by(now_s + RETRY_S)
        return
    if gone.members:
        log.info("group %s goes on without %s: not heard of in time", group_id, some(gone.members))
    _keep_watching(shard, group_id, live, late)
    departed(coordinator, shard, group_id, gone)


def _keep_watching(shard: GroupShard, group_id: str, live: LiveConsumerGroup, rung: list[str]) -> None:
    """Whoever is still a member has other deadlines: of a static one that rests, its session must end, too."""
    group = shard.machine.newest.groups.get(group_id)
    for member_id in rung:
        if isinstance(group, ConsumerGroup) and member_id in group.members:
            deadlines = live.members[member_id]
            deadlines.rebalance_s = NEVER
            live.wake_by(deadlines.next_s)
        else:
            live.members.pop(member_id, None)


def _is_late(deadlines: Deadlines, member: Member, now_s: float) -> bool:
    if min(deadlines.session_s, deadlines.join_s, deadlines.sync_s) <= now_s:
        return True
    return deadlines.rebalance_s <= now_s and member.epoch == deadlines.rebalance_epoch


def departed(coordinator: GroupCoordinator, shard: GroupShard, group_id: str, gone: Gone) -> None:
    """Members left: their deadlines go, and where the group is a classic one by that, it is brought to life as one."""
    live = shard.live.consumer.get(group_id)
    if live is not None:
        for member_id in gone.members:
            live.members.pop(member_id, None)
        if gone.downgrade is not None or not live.members:
            forget(shard, group_id)
    if gone.downgrade is not None:
        why = "the last member of the consumer protocol left"
        coordinator.migration.install(coordinator, shard, gone.downgrade, why)
