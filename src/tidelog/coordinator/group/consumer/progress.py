"""What a member's request does to the group: the group epoch, the target, and the member's own step.

1. The member's subscription is written where it changed; expressions are resolved where they are new or due.
2. The group epoch grows where subscriptions changed, or the topics did: their hash is another one.
3. The target follows the group epoch, at most once in `assignment_interval_ms`. A large one comes later.
4. The member takes its step (`reconcile`).

Pure: nothing here waits or remembers; what expressions matched before comes in with the context. Both protocols'
members come through here.
"""

from collections.abc import Mapping
from typing import NamedTuple

from immutables import Map

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.consumer import entries as records
from tidelog.coordinator.group.consumer.context import DecisionContext
from tidelog.coordinator.group.consumer.membership import Found
from tidelog.coordinator.group.consumer.reconcile import Owned, reconcile
from tidelog.coordinator.group.consumer.regex import Room, check_regex
from tidelog.coordinator.group.consumer.state import (
    NO_SUBSCRIPTION,
    NOTHING,
    ConsumerGroup,
    Member,
    Resolved,
    Subscription,
)
from tidelog.coordinator.group.consumer.target import (
    Target,
    compute_target,
    is_due,
    microseconds,
    preferred_assignor,
)
from tidelog.coordinator.group.consumer.topics import group_hash, ids_of
from tidelog.env.slices import whole
from tidelog.machine.decision import Decision


class Step(NamedTuple):
    """What came of it."""

    member: Member
    compared: bool
    """Whether the topics' hash was compared with the image."""
    moved: bool
    """Whether the member took a step."""
    resolved: bool
    """Whether all expressions are; else the next heartbeat goes on with them."""
    wants_target: bool
    """Whether a target is due that takes long to compute."""


class _Subscribed(NamedTuple):
    """The group's subscriptions as they are after the request."""

    counts: Mapping[Subscription, int]
    resolved: Map[str, Resolved]
    changed: bool
    """Topics came or went by it: the group epoch must grow."""
    complete: bool = True
    """All expressions are resolved."""


def advance(
    group: ConsumerGroup, identity: Found, after: Member, owned: Owned, context: DecisionContext
) -> Decision[Entry, Step]:
    before = identity.member
    entries: list[Entry] = []
    is_new = identity.replaces is None and before.id not in group.members
    if identity.replaces is not None:
        entries += _replacing(group, identity.replaces, before)
    if after is not before or is_new:
        entries.append(records.subscription_entry(group.id, after))
    subscription_changed = after.subscription != before.subscription
    if not (subscription_changed or is_new or context.compare_topics or context.refresh_regexes):
        subscribed = _Subscribed(group.subscriptions, group.resolved, changed=False)
        epoch, compared = group.epoch, False
    else:
        more, subscribed = _subscribe(group, None if is_new else before.subscription, after.subscription, context)
        entries += more
        more, epoch = _new_epoch(group, subscribed, context)
        entries += more
        compared = True
    more, target = _target(group, epoch, identity, after, subscribed, context)
    entries += more
    moved = False
    if subscription_changed or not after.reconciled_to(target.epoch):
        mine = (None, after.id, identity.replaces)
        stepped = reconcile(
            after,
            target.epoch,
            target.partitions,
            ids_of(after.subscription, subscribed.resolved, context.image),
            lambda topic, partition: group.owners.get((topic, partition)) in mine,
            owned,
            subscription_changed=subscription_changed,
        )
        if stepped is not after:
            entries.append(records.current_entry(group.id, stepped))
            after, moved = stepped, True
    return Decision(entries, Step(after, compared, moved, subscribed.complete, target.is_due))


def _replacing(group: ConsumerGroup, former_id: str, member: Member) -> list[Entry]:
    """A static member under its new id: what the former had is its own."""
    return [
        *records.member_gone(group.id, former_id),
        records.subscription_entry(group.id, member),
        records.target_entry(group.id, member.id, group.target.get(former_id, NOTHING)),
        records.current_entry(group.id, member),
    ]


def _subscribe(
    group: ConsumerGroup,
    before: Subscription | None,
    after: Subscription,
    context: DecisionContext,
) -> Decision[Entry, _Subscribed]:
    """`before` is None for a member that wasn't there. An expression that is new to the group is resolved at once."""
    entries: list[Entry] = []
    counts = counted(group.subscriptions, before, after)
    former = before or NO_SUBSCRIPTION
    resolved, changed = group.resolved, former.names != after.names
    wanted = {subscription.regex for subscription in counts if subscription.regex}
    if former.regex != after.regex:
        if after.regex and after.regex not in group.regexes():
            check_regex(after.regex)
        changed |= not after.regex or after.regex in resolved
        if former.regex and former.regex not in wanted:
            entries.append(records.regex_gone(group.id, former.regex))
            resolved = resolved.delete(former.regex) if former.regex in resolved else resolved
    room, complete = Room(), True
    for regex in sorted(wanted):
        known = resolved.get(regex)
        if known is not None and not context.refresh_regexes:
            continue
        topics = context.matches.of(regex, context.image.topics, room)
        if topics is None:
            complete = False
        elif known is None or known.topics != topics:
            matches = Resolved(topics, context.image.offset, context.now_ms)
            entries.append(records.regex_entry(group.id, regex, matches))
            resolved = resolved.set(regex, matches)
            changed |= known is not None or bool(topics)
    return Decision(entries, _Subscribed(counts, resolved, changed, complete))


def counted(
    counts: Mapping[Subscription, int], before: Subscription | None, after: Subscription | None
) -> dict[Subscription, int]:
    """How many members have each subscription once one of them has changed its own."""
    subscribers = dict(counts)
    if before is not None:
        subscribers[before] -= 1
        if not subscribers[before]:
            del subscribers[before]
    if after is not None:
        subscribers[after] = subscribers.get(after, 0) + 1
    return subscribers


def _new_epoch(group: ConsumerGroup, subscribed: _Subscribed, context: DecisionContext) -> Decision[Entry, int]:
    entries: list[Entry] = []
    metadata_hash = group_hash(subscribed.counts, subscribed.resolved, context.image)
    epoch = group.epoch
    if subscribed.changed or metadata_hash != group.metadata_hash:
        epoch += 1
        entries.append(records.epoch_entry(group.id, epoch, metadata_hash))
    if group.has_partition_metadata:
        entries.append(records.partition_metadata_gone(group.id))
    return Decision(entries, epoch)


def _target(
    group: ConsumerGroup,
    epoch: int,
    identity: Found,
    after: Member,
    subscribed: _Subscribed,
    context: DecisionContext,
) -> Decision[Entry, Target]:
    """The target as it is, or the next one where it is due."""
    due = group.target_epoch < epoch and is_due(group, context.terms.assignment_interval_ms, context.now_ms)
    if not due or microseconds(subscribed.counts, subscribed.resolved, context.image) > context.computes_us:
        return Decision((), Target(group.target_epoch, group.target.get(identity.replaces or after.id, NOTHING), due))
    members = dict(group.members)
    members[after.id] = after
    inherits: dict[str, str] = {}
    if identity.replaces is not None and identity.replaces != after.id:  # one that rested may come back under its id
        del members[identity.replaces]
        inherits[after.id] = identity.replaces
    assignor = preferred_assignor(members, context.terms.assignors[0])
    made, target = whole(
        compute_target(group, epoch, members, inherits, subscribed.resolved, assignor, context.image, context.now_ms)
    )
    return Decision(made, Target(epoch, target[after.id]))
