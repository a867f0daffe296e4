"""The target assignment: computed when the group epoch is ahead of it, at most once in an interval.

Only what changed is written: a record for each member whose part is another one now, then the epoch. A small one is
computed by the decision that finds it due, a large one in steps (`target_job.py`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.consumer.assignors import ASSIGNORS
from tidelog.coordinator.group.consumer.assignors.spec import Candidate
from tidelog.coordinator.group.consumer.entries import target_entry, target_epoch_entry
from tidelog.coordinator.group.consumer.state import NOTHING, ConsumerGroup, Member, Partitions, Resolved, Subscription
from tidelog.coordinator.group.consumer.topics import ids_of, names_of
from tidelog.env.slices import Steps
from tidelog.metadata.image import ClusterImage


class Target(NamedTuple):
    """The target epoch, and one member's part."""

    epoch: int
    partitions: Partitions
    is_due: bool = False
    """Whether another one is to be computed."""


def is_due(group: ConsumerGroup, interval_ms: int, now_ms: int) -> bool:
    """Whether a target may be computed now: the last is old enough, or there is none, or there is no interval.

    One from the future says that the clock was set back, here or by a restart: how old it is isn't known.
    """
    last_ms = group.target_timestamp_ms
    return last_ms == 0 or not 0 <= now_ms - last_ms < interval_ms


def preferred_assignor(members: Mapping[str, Member], default: str) -> str:
    """The one that most members ask for; of equals, the first by name."""
    counts: dict[str, int] = {}
    for member in members.values():
        if member.assignor is not None:
            counts[member.assignor] = counts.get(member.assignor, 0) + 1
    if not counts:
        return default
    return min(counts, key=lambda name: (-counts[name], name))


def microseconds(
    subscriptions: Mapping[Subscription, int], resolved: Mapping[str, Resolved], image: ClusterImage
) -> int:
    """About how long it takes to compute and write the target of a group with so many members of each subscription."""
    topics: set[str] = set()
    pairs = 0
    for subscription, members in subscriptions.items():
        names = names_of(subscription, resolved)
        topics.update(names)
        pairs += members * len(names)
    images = [image.topics[name] for name in topics if name in image.topics]
    partitions = sum(len(topic.partitions) for topic in images)
    alike = len(subscriptions) == 1
    return sum(subscriptions.values()) * 20 + partitions + len(images) * 10 + (0 if alike else pairs)


def compute_target(
    group: ConsumerGroup,
    epoch: int,
    members: Mapping[str, Member],
    inherits: Mapping[str, str],
    resolved: Mapping[str, Resolved],
    assignor: str,
    image: ClusterImage,
    now_ms: int,
) -> Steps[tuple[list[Entry], dict[str, Partitions]]]:
    """The records of the target for `epoch`, and the target itself.

    `members` are those of the group after this decision; `inherits` names, for a static member that came back under a
    new id, the id whose part it takes over.
    """
    topics_of: dict[Subscription, tuple[bytes, ...]] = {}
    candidates: list[Candidate] = []
    for member_id in sorted(members):
        member = members[member_id]
        topics = topics_of.get(member.subscription)
        if topics is None:
            topics = topics_of[member.subscription] = tuple(sorted(ids_of(member.subscription, resolved, image)))
        before = group.target.get(inherits.get(member_id, member_id), NOTHING)
        candidates.append(Candidate(member_id, member.instance_id, topics, before))
        yield
    counts = {topic: len(image.topics_by_id[topic].partitions) for topics in topics_of.values() for topic in topics}
    assign = ASSIGNORS.get(assignor) or ASSIGNORS["uniform"]
    target = yield from assign(candidates, counts)
    entries: list[Entry] = []
    for member_id, partitions in target.items():
        if group.target.get(member_id) != partitions:
            entries.append(target_entry(group.id, member_id, partitions))
        yield
    entries.append(target_epoch_entry(group.id, epoch, now_ms))
    return entries, target
