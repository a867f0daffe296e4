"""Where the classic protocol's decisions become real: answers leave, records are written, deadlines ring.

A group has one timer, set for a moment before which no deadline lies. A heartbeat only moves its member's deadline: a
timer that rings too early finds nothing due and is set anew, so the loop carries one timer a group however many members
it has and however often they are heard of.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

from tidelog.coordinator.group.classic.departures import expire
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import NEVER
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.outcomes import written
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.rebalance import Limits
from tidelog.coordinator.group.classic.state import ClassicGroup
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.group.classic.decision import ClassicDecision, Purpose
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.env.clock import Clock
    from tidelog.env.promise import Promise

log = logging.getLogger("tidelog.groups")

_MS = 1000.0
_SLACK_S = 0.001
"""An alarm rings this much late: the deadline is over then, however its fractions were rounded."""


def limits_of(config: BrokerConfig) -> Limits:
    return Limits(
        config.group_min_session_timeout_ms,
        config.group_max_session_timeout_ms,
        config.group_max_size,
        config.group_initial_rebalance_delay_ms,
    )


def moment(clock: Clock) -> Moment:
    return Moment(clock.monotonic() * _MS, clock.now_ms())


def find(shard: GroupShard, group_id: str) -> LiveClassicGroup | None:
    """The group, if it has or had members here. One that was deleted behind its back is forgotten."""
    group = shard.live.classic.get(group_id)
    if group is None or group.members or group.pending or group.writing:
        return group
    if isinstance(shard.machine.newest.groups.get(group_id), ClassicGroup) or group_id in shard.machine.newest.offsets:
        return group
    forget(shard, group_id)
    return None


def open_group(shard: GroupShard, group_id: str, now: Moment) -> tuple[LiveClassicGroup, bool]:
    """The group, brought to life where it rests in the log; and whether it is new, so that it needs a record."""
    group = find(shard, group_id)
    if group is not None:
        return group, False
    newest = shard.machine.newest
    known = newest.groups.get(group_id)
    is_classic = isinstance(known, ClassicGroup)
    group = LiveClassicGroup.loaded(known, now) if is_classic else LiveClassicGroup(group_id, now)
    shard.live.classic[group_id] = group
    return group, not is_classic and group_id not in newest.offsets


def forget(shard: GroupShard, group_id: str) -> None:
    """The group follows this protocol no longer, or isn't there any more. Nobody may wait in it."""
    group = shard.live.classic.pop(group_id, None)
    if group is not None and group.alarm is not None:
        group.alarm.cancel()


def act(coordinator: GroupCoordinator, shard: GroupShard, group: LiveClassicGroup, decision: ClassicDecision) -> None:
    """Do what was decided. The group is between two events here, so what an answer sets off may come back."""
    records, (answers, purpose) = decision
    for answer in answers:
        cast("Promise[Any]", answer.ticket).resolve(answer.response)
    if purpose is not None:
        group.writing += 1
        written = shard.submit(lambda state, _: Decision(records, None))
        written.on_done(lambda done: _written(coordinator, shard, group, purpose, done))
    if group.phase is Phase.DEAD:
        if shard.live.classic.get(group.group_id) is group:
            forget(shard, group.group_id)
    else:
        _set_alarm(coordinator, shard, group)


def _written(
    coordinator: GroupCoordinator, shard: GroupShard, group: LiveClassicGroup, purpose: Purpose, done: Promise[None]
) -> None:
    group.writing -= 1
    now = moment(shard.clock)
    act(coordinator, shard, group, written(group, purpose, error_of(done.error), limits_of(coordinator.config), now))


def error_of(error: BaseException | None) -> ErrorCode:
    """A failed write, as an error of the protocol."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, KafkaError):
        return error.code
    if isinstance(error, OSError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    log.error("a group's record could not be written", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _set_alarm(coordinator: GroupCoordinator, shard: GroupShard, group: LiveClassicGroup) -> None:
    if group.wake_ms >= group.alarm_ms or not shard.leads:
        return
    if group.alarm is not None:
        group.alarm.cancel()
    delay_s = max(group.wake_ms / _MS - shard.clock.monotonic(), 0.0) + _SLACK_S
    group.alarm_ms = group.wake_ms
    group.alarm = shard.schedule(delay_s, lambda: _ring(coordinator, shard, group))


def _ring(coordinator: GroupCoordinator, shard: GroupShard, group: LiveClassicGroup) -> None:
    group.alarm, group.alarm_ms = None, NEVER
    if shard.live.classic.get(group.group_id) is group:
        act(coordinator, shard, group, expire(group, limits_of(coordinator.config), moment(shard.clock)))
        find(shard, group.group_id)  # its record may be gone already, and the last id was what kept it
