"""What an assignor is told of a member."""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.coordinator.group.consumer.state import Partitions


class Candidate(NamedTuple):
    """`topics` are the ids of those that it subscribes to and that exist, in order: members that subscribe to the same
    share one tuple. `before` is what the last target gave it."""

    id: str
    instance_id: str | None
    topics: tuple[bytes, ...]
    before: Partitions


def alike(members: Sequence[Candidate]) -> bool:
    """Whether all subscribe to the same topics."""
    first = members[0].topics
    return all(member.topics is first or member.topics == first for member in members)
