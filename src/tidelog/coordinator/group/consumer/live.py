"""What is known of a consumer group besides its log: until when each member must be heard of.

One timer a group, set for a moment before which no deadline lies. A heartbeat moves its member's deadline and leaves
the timer as it is; one that rings too early finds nothing due and is set anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.group.consumer.terms import Terms
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.env.loop import Timer
    from tidelog.metadata.image import BrokerImage

NEVER = float("inf")


class Deadlines:
    """Of one member, on the clock that never goes back; in seconds."""

    __slots__ = ("join_s", "rebalance_epoch", "rebalance_s", "session_s", "sync_s")

    def __init__(self) -> None:
        self.session_s = NEVER
        self.rebalance_s = NEVER
        """Until when it must have given up what it was told to, in the epoch `rebalance_epoch`."""
        self.rebalance_epoch = -1
        self.join_s = NEVER
        """Until when a member of the classic protocol must have joined again."""
        self.sync_s = NEVER
        """Until when it must have asked for its assignment."""

    @property
    def next_s(self) -> float:
        return min(self.session_s, self.rebalance_s, self.join_s, self.sync_s)


class LiveConsumerGroup:
    __slots__ = (
        "alarm",
        "alarm_s",
        "assigning",
        "brokers",
        "config",
        "members",
        "overrides",
        "regexes_ms",
        "regexes_topics",
        "terms",
        "topics",
        "vain",
        "wake_s",
    )

    def __init__(self) -> None:
        self.members: dict[str, Deadlines] = {}
        self.wake_s: float = NEVER
        """No deadline is before this moment."""
        self.alarm: Timer | None = None
        self.alarm_s: float = NEVER
        self.topics: object = None
        """The shape of those with which the group's hash was last compared; with `brokers`, for their racks."""
        self.brokers: Mapping[int, BrokerImage] | None = None
        self.regexes_topics: object = None
        """The shape of those against which the group's expressions were last matched, and when."""
        self.regexes_ms = 0
        self.terms: Terms | None = None
        """Of `config` and the group's own settings, `overrides`."""
        self.config: BrokerConfig | None = None
        self.overrides: Mapping[str, str] | None = None
        self.assigning = False
        """A target is being computed, in steps."""
        self.vain = 0
        """How many were, one after the other, for members who weren't the group's any more when it was done."""

    def of(self, member_id: str) -> Deadlines:
        deadlines = self.members.get(member_id)
        if deadlines is None:
            deadlines = self.members[member_id] = Deadlines()
        return deadlines

    def wake_by(self, deadline_s: float) -> None:
        if deadline_s < self.wake_s:
            self.wake_s = deadline_s

    def due(self, now_s: float) -> list[str]:
        """The members that are late; and from now on, wakes at the next deadline of the others."""
        late: list[str] = []
        wake_s = NEVER
        for member_id, deadlines in self.members.items():
            next_s = deadlines.next_s
            if next_s <= now_s:
                late.append(member_id)
            elif next_s < wake_s:
                wake_s = next_s
        self.wake_s = wake_s
        return late


def forget(shard: GroupShard, group_id: str) -> None:
    """The group follows this protocol no longer, or isn't there any more."""
    live = shard.live.consumer.pop(group_id, None)
    if live is not None and live.alarm is not None:
        live.alarm.cancel()
        live.alarm = None
