"""When a group of the consumer protocol goes on as a classic one, and what this protocol needs to know of that.

Those who stay must all speak the classic protocol. What they become is made by who knows both protocols
(`group/migration.py`): this one declares what it asks of it, and leaves it alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.consumer.state import ConsumerGroup, Member
from tidelog.coordinator.group.consumer.terms import Terms

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.metadata.image import ClusterImage


class Downgrade(NamedTuple):
    """The records, and the classic group that they make: stable, without deadlines yet."""

    entries: list[Entry]
    successor: object


class MakeDowngrade(Protocol):
    def __call__(
        self,
        group: ConsumerGroup,
        leaving: Collection[str],
        image: ClusterImage,
        now_ms: int,
        joining: Member | None = None,
    ) -> Downgrade:
        """The classic group of those who stay. `joining` takes the place, and the assignment, of the static member
        whose instance id it has."""
        ...


class Migration(Protocol):
    """What knows both protocols."""

    @property
    def downgrade(self) -> MakeDowngrade: ...

    def install(
        self,
        coordinator: GroupCoordinator,
        shard: GroupShard,
        downgrade: Downgrade,
        reason: str,
        *,
        rebalance: bool = True,
    ) -> None:
        """The records are appended: the group is a classic one from now on."""
        ...


def may_downgrade(group: ConsumerGroup, leaving: Collection[Member], terms: Terms) -> bool:
    """Whether those who stay are some, all speak the classic protocol, and may go back to it."""
    staying = len(group.members) - len(leaving)
    classic = group.classic_members - sum(member.classic is not None for member in leaving)
    return 0 < staying == classic and staying <= terms.classic_members_max and terms.may_downgrade
